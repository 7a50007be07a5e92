-- Number of rows per query table, and how many of them belong to no record.
SELECT 'combat_engagement' AS name, count(*) AS rows, count(*) FILTER (WHERE round_id IS NULL) AS unlinked FROM combat_engagement
UNION ALL SELECT 'lua_round_teams', count(*), count(*) FILTER (WHERE round_id IS NULL) FROM lua_round_teams
UNION ALL SELECT 'lua_spawn_stats', count(*), count(*) FILTER (WHERE round_id IS NULL) FROM lua_spawn_stats
UNION ALL SELECT 'player_track', count(*), count(*) FILTER (WHERE round_id IS NULL) FROM player_track
UNION ALL SELECT 'proximity_kill_heatmap', count(*), count(*) FILTER (WHERE round_id IS NULL) FROM proximity_kill_heatmap
UNION ALL SELECT 'proximity_movement_heatmap', count(*), count(*) FILTER (WHERE round_id IS NULL) FROM proximity_movement_heatmap
UNION ALL SELECT 'proximity_objective_focus', count(*), count(*) FILTER (WHERE round_id IS NULL) FROM proximity_objective_focus
ORDER BY 1;

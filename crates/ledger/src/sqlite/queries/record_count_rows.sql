-- Number of rows per query table, and how many of them belong to no record.
SELECT 'combat_engagement' AS name, count(*) AS rows, coalesce(sum(round_id IS NULL), 0) AS unlinked FROM combat_engagement
UNION ALL SELECT 'lua_round_teams', count(*), coalesce(sum(round_id IS NULL), 0) FROM lua_round_teams
UNION ALL SELECT 'lua_spawn_stats', count(*), coalesce(sum(round_id IS NULL), 0) FROM lua_spawn_stats
UNION ALL SELECT 'player_track', count(*), coalesce(sum(round_id IS NULL), 0) FROM player_track
UNION ALL SELECT 'proximity_kill_heatmap', count(*), coalesce(sum(round_id IS NULL), 0) FROM proximity_kill_heatmap
UNION ALL SELECT 'proximity_movement_heatmap', count(*), coalesce(sum(round_id IS NULL), 0) FROM proximity_movement_heatmap
UNION ALL SELECT 'proximity_objective_focus', count(*), coalesce(sum(round_id IS NULL), 0) FROM proximity_objective_focus
ORDER BY 1;

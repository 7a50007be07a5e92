-- Events after a place that belong to no record for sure, or whose rows are missing.
SELECT seq FROM record_event
WHERE door = $1 AND seq > $2 AND (link_status <> 'linked_round_id' OR drift IS NOT NULL)
ORDER BY seq LIMIT $3;

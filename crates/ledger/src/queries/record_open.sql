-- Events after a seq without a certain link to a record, or with missing rows.
SELECT seq FROM record_event
WHERE door = $1 AND seq > $2 AND (link_status <> 'linked_round_id' OR drift IS NOT NULL)
ORDER BY seq LIMIT $3;

-- The inbox in order of arrival, after a row.
SELECT place, event_id, status, received_at, last_updated_at, payload FROM event_inbox
WHERE place > $1 ORDER BY place LIMIT $2;

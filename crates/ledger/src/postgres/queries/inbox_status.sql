-- What consumers did to events shows in their rows.
UPDATE event_inbox i SET status = t.status, last_updated_at = $1
FROM unnest($2::text[], $3::text[]) AS t (event_id, status)
WHERE i.event_id = t.event_id;

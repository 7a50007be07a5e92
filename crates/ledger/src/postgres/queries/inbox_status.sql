-- Updates the status of inbox rows after consumers changed their leases.
UPDATE event_inbox i SET status = t.status, last_updated_at = $3
FROM unnest($1::text[], $2::text[]) AS t (event_id, status)
WHERE i.event_id = t.event_id;

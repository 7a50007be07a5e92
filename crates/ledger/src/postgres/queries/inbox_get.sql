-- One row of the inbox.
SELECT place, event_id, status, received_at, last_updated_at, payload FROM event_inbox
WHERE event_id = $1;

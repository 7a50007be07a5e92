-- Inbox rows of these events.
SELECT event_id, payload FROM event_inbox WHERE event_id = ANY($1);

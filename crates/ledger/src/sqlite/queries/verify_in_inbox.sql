-- What the inbox holds of these events.
SELECT event_id, payload FROM event_inbox WHERE event_id IN (SELECT value FROM json_each(?1));

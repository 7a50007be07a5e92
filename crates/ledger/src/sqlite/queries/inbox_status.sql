-- Updates the status of an inbox row after a consumer changed its lease.
UPDATE event_inbox SET status = ?2, last_updated_at = ?3
WHERE event_id = (SELECT json_extract(facts, '$.event_id') FROM admission WHERE seq = ?1);

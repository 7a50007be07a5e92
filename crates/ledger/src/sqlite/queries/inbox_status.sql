-- What a consumer did to the event at a place shows in its row.
UPDATE event_inbox SET status = ?2, last_updated_at = ?3
WHERE event_id = (SELECT json_extract(facts, '$.event_id') FROM admission WHERE seq = ?1);

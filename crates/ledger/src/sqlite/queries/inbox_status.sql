-- What a consumer did to an event shows in its row.
UPDATE event_inbox SET status = ?3, last_updated_at = ?1 WHERE event_id = ?2;

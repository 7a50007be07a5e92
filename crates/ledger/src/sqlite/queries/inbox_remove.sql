-- Removes the inbox copy of an expired body, unless the event is not finished yet.
DELETE FROM event_inbox
WHERE status IN ('done', 'failed')
  AND event_id = (SELECT json_extract(facts, '$.event_id') FROM admission
                  WHERE seq = ?1 AND door = 'skyra' AND verdict = 'fresh');

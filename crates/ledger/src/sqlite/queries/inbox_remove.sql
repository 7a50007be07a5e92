-- The body at a place is too old to be kept. Its copy in the inbox goes with it, unless nobody has
-- finished with it yet.
DELETE FROM event_inbox
WHERE status IN ('done', 'failed')
  AND event_id = (SELECT json_extract(facts, '$.event_id') FROM admission
                  WHERE seq = ?1 AND door = 'skyra' AND verdict = 'fresh');

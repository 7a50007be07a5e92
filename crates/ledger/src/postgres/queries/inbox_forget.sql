-- Deletes inbox rows of finished events whose bodies have expired.
DELETE FROM event_inbox i
USING unnest($1::text[], $2::bigint[]) AS t (event_id, seq)
WHERE i.event_id = t.event_id AND NOT EXISTS (SELECT 1 FROM body b WHERE b.seq = t.seq);

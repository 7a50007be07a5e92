-- Removes the inbox copies of expired bodies, unless the event is not finished yet.
DELETE FROM event_inbox WHERE status IN ('done', 'failed') AND place = ANY ($1::bigint[]);

-- The bodies at these places are too old to be kept. Their copies in the inbox go with them, unless
-- nobody has finished with them yet.
DELETE FROM event_inbox WHERE status IN ('done', 'failed') AND place = ANY ($1::bigint[]);

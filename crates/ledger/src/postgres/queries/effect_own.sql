-- Effects that a gate has taken from one that is gone: what was not begun is its own to begin, and of
-- what is lost it is not said yet.
UPDATE effect SET epoch = $2 WHERE seq = ANY($1::bigint[]) AND state IN ('intended', 'ambiguous');

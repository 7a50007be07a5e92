-- Removes a deferred expiry check.
DELETE FROM retain_later l USING unnest($1::bigint[], $2::bigint[]) AS w(due_at, seq)
WHERE l.due_at = w.due_at AND l.seq = w.seq;

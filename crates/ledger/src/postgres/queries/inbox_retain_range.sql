-- The same for a range of seqs.
DELETE FROM event_inbox WHERE status IN ('done', 'failed') AND place >= $1 AND place < $2;

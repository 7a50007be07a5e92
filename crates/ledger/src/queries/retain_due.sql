-- Deferred admissions due before $1, with the columns of retain_rows.sql; they may be removed already.
SELECT a.seq, a.verdict, a.key, a.received_at, a.happened_at, l.due_at, l.seq AS later_seq
FROM retain_later l LEFT JOIN admission a ON a.seq = l.seq
WHERE l.due_at < $1 ORDER BY l.due_at, l.seq LIMIT $2;

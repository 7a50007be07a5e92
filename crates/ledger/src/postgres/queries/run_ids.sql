-- Ids of a run's documents of one kind, in their order. The index has everything that is asked for;
-- the bounds keep a small run in a large ledger from being one long read.
SELECT id FROM issued
WHERE id > $3 AND id < $4 AND run = $1 AND kind = $2
ORDER BY id LIMIT $5;

-- Ids of a run's documents of one kind, sorted. The index covers the query; the bounds keep a small
-- run in a large ledger from being one long scan.
SELECT id FROM issued
WHERE id > $3 AND id < $4 AND run = $1 AND kind = $2
ORDER BY id LIMIT $5;

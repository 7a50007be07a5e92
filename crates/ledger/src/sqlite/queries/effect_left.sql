-- What is not settled, in ledger order after ?1. Written so that the partial index serves it.
SELECT * FROM effect WHERE state <> 'done' AND state IN ('intended', 'in_flight') AND seq > ?1
ORDER BY seq LIMIT ?2;

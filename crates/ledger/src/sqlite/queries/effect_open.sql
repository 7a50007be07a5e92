-- What is not settled, in ledger order. Written so that the partial index serves it.
SELECT * FROM effect WHERE state <> 'done' AND state IN ('intended', 'in_flight') ORDER BY seq;

-- Unsettled effects, in ledger order. Written so that the partial index is used.
SELECT * FROM effect WHERE state <> 'done' AND state IN ('intended', 'in_flight') ORDER BY seq;

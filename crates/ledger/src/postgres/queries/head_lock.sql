-- Locks the head of the ledger, which makes this transaction the only writer.
SELECT last_seq, admissions, sightings, keys, last_issued, given_back FROM head WHERE one FOR UPDATE;

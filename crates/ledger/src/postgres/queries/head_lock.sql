-- The head of the ledger, locked: from here on this transaction is the only one that writes.
SELECT last_seq, admissions, sightings, keys, last_issued, given_back FROM head WHERE one FOR UPDATE;

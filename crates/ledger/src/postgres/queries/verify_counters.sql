-- The counters of the ledger.
SELECT last_seq, admissions, sightings FROM head;

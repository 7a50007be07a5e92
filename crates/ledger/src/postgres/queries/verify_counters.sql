-- Where the ledger stands.
SELECT last_seq, admissions, sightings FROM head;

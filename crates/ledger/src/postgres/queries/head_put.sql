-- Writes back the counters of the ledger.
UPDATE head SET last_seq = $1, admissions = $2, sightings = $3, keys = $4, last_issued = $5,
  given_back = $6
WHERE one;

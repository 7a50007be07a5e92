-- Where the ledger stands after this commit.
UPDATE head SET last_seq = $1, admissions = $2, sightings = $3, keys = $4, last_issued = $5,
  given_back = $6
WHERE one;

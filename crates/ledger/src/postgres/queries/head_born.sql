-- Initialises an empty ledger; an existing one keeps its tag.
INSERT INTO head (tag, last_seq, admissions, sightings, keys, last_issued, given_back)
VALUES ($1, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING;

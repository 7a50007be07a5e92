-- Inserts sightings of copies. Counters are computed from these rows, so nothing is updated in place.
INSERT INTO sighting (seq, admission, received_at, attempt, other)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]);

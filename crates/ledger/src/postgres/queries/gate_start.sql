-- A gate starts: the next epoch is its own.
INSERT INTO gate (owner, started_at, alive_until)
VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond') RETURNING epoch;

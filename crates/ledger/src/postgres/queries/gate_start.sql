-- A gate starts: the next epoch is its own.
INSERT INTO gate (owner, started_at, alive_until)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        clock_timestamp() + $2::bigint * interval '1 millisecond') RETURNING epoch;

-- Starts a gate with the next epoch.
INSERT INTO gate (owner, started_at, alive_until, lease_ms)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        clock_timestamp() + $2::bigint * interval '1 millisecond', $2) RETURNING epoch;

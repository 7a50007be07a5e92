-- Stores the leases of claimed entries.
INSERT INTO claim (door, seq, lease, consumer, attempt, expires_at)
SELECT $1, t.seq, t.lease, $2, t.attempt, $3
FROM unnest($4::bigint[], $5::bytea[], $6::bigint[]) AS t (seq, lease, attempt)
ON CONFLICT (door, seq) DO UPDATE SET lease = excluded.lease, consumer = excluded.consumer,
  attempt = excluded.attempt, expires_at = excluded.expires_at;

-- Stores the lease of a claimed entry.
INSERT INTO claim (door, seq, lease, consumer, attempt, expires_at)
SELECT $1, t.seq, t.lease, $5, t.attempt, $6
FROM unnest($2::bigint[], $3::bytea[], $4::bigint[]) AS t (seq, lease, attempt)
ON CONFLICT (door, seq) DO UPDATE SET lease = excluded.lease, consumer = excluded.consumer,
  attempt = excluded.attempt, expires_at = excluded.expires_at;

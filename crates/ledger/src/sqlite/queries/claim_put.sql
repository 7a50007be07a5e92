-- Stores the lease of a claimed entry.
INSERT INTO claim (door, seq, lease, consumer, attempt, expires_at) VALUES (?1, ?4, ?5, ?2, ?6, ?3)
ON CONFLICT (door, seq) DO UPDATE SET lease = excluded.lease, consumer = excluded.consumer,
  attempt = excluded.attempt, expires_at = excluded.expires_at;

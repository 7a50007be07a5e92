-- Extends or releases a lease (then without a token).
UPDATE claim c SET lease = t.lease, expires_at = t.expires_at
FROM unnest($2::bigint[], $3::bytea[], $4::bigint[]) AS t (seq, lease, expires_at)
WHERE c.door = $1 AND c.seq = t.seq;

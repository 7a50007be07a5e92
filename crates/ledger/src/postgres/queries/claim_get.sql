-- Lease holders of these entries, with expiry.
SELECT seq, lease, consumer, expires_at FROM claim WHERE door = $1 AND seq = ANY($2);

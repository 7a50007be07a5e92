-- Lease holder of an entry, with expiry.
SELECT lease, consumer, expires_at FROM claim WHERE door = ?1 AND seq = ?2;

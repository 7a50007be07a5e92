-- Who holds a place, and until when.
SELECT lease, consumer, expires_at FROM claim WHERE door = ?1 AND seq = ?2;

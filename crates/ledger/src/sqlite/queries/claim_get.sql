-- Who holds a place, and until when.
SELECT seq, lease, consumer, expires_at FROM claim WHERE door = ?1 AND seq = ?2;

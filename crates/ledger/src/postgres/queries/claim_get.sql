-- Who holds these places, and until when.
SELECT seq, lease, consumer, expires_at FROM claim WHERE door = $1 AND seq = ANY($2);

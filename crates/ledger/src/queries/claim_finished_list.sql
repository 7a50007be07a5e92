-- Entries finished with another status than "done", after $2.
SELECT seq, status, consumer, finished_at FROM claim_finished
WHERE door = $1 AND seq > $2 ORDER BY seq LIMIT $3;

-- Up to where a stream is handed out with this commit.
INSERT INTO claim_head (door, head) VALUES ($1, $2)
ON CONFLICT (door) DO UPDATE SET head = excluded.head;

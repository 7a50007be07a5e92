-- Sets the seq up to which a stream was claimed.
INSERT INTO claim_head (door, head) VALUES ($1, $2)
ON CONFLICT (door) DO UPDATE SET head = excluded.head;

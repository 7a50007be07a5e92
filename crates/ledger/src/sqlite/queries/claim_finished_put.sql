-- Stores an entry finished with another status than "done".
INSERT INTO claim_finished (door, seq, status, consumer, finished_at) VALUES (?1, ?3, ?4, ?5, ?2)
ON CONFLICT (door, seq) DO NOTHING;

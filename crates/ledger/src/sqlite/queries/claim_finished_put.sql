-- Stores entries finished with another status than "done".
INSERT INTO claim_finished (door, seq, status, consumer, finished_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (door, seq) DO NOTHING;

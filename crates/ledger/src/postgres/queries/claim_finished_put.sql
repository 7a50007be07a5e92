-- Stores entries finished with another status than "done".
INSERT INTO claim_finished (door, seq, status, consumer, finished_at)
SELECT $1, t.seq, t.status, t.consumer, $2
FROM unnest($3::bigint[], $4::text[], $5::text[]) AS t (seq, status, consumer)
ON CONFLICT (door, seq) DO NOTHING;

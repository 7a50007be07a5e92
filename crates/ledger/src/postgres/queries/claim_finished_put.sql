-- Stores entries finished with another status than "done".
INSERT INTO claim_finished (door, seq, status, consumer, finished_at)
SELECT $1, t.seq, t.status, t.consumer, $5
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS t (seq, status, consumer)
ON CONFLICT (door, seq) DO NOTHING;

-- Sightings after $1 and up to $2 with their admissions.
SELECT s.seq, s.admission, s.other, a.verdict AS verdict, o.verdict AS other_verdict,
       o.first AS other_first, EXISTS (SELECT 1 FROM admission t WHERE t.seq = s.seq) AS has_twin
FROM sighting s
LEFT JOIN admission a ON a.seq = s.admission
LEFT JOIN admission o ON o.seq = s.other
WHERE s.seq > $1 AND s.seq <= $2
ORDER BY s.seq LIMIT $3;

-- The oldest empty partition of sightings that cannot get new rows: all of its seqs are assigned.
SELECT g.lo, g.hi FROM growth g, head h
WHERE g.parent = 'sighting' AND g.hi <= h.last_seq
  AND NOT EXISTS (SELECT 1 FROM sighting s WHERE s.seq >= g.lo AND s.seq < g.hi)
ORDER BY g.lo LIMIT 1;

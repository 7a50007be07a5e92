-- The oldest partition of bodies, if every seq in it is assigned and everything in it was received
-- before $1. Its last admission is checked first, which mostly decides.
SELECT g.lo, g.hi
FROM (SELECT lo, hi FROM growth WHERE parent = 'body' ORDER BY lo LIMIT 1) g, head h
WHERE g.hi <= h.last_seq
  AND coalesce((SELECT a.received_at < $1 FROM admission a
                WHERE a.seq >= g.lo AND a.seq < g.hi ORDER BY a.seq DESC LIMIT 1), true)
  AND NOT EXISTS (SELECT 1 FROM admission a
                  WHERE a.seq >= g.lo AND a.seq < g.hi AND a.received_at >= $1);

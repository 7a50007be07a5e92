-- The same for the refusals in a range of seqs.
UPDATE refusal_quota q SET bytes = greatest(0, q.bytes - g.bytes)
FROM (SELECT a.door, a.principal, sum(octet_length(b.bytes))::bigint AS bytes
      FROM admission a JOIN body b ON b.seq = a.seq
      WHERE a.seq >= $1 AND a.seq < $2 AND b.seq >= $1 AND b.seq < $2
        AND a.verdict IN ('conflict', 'refused') AND a.verdict = 'refused'
      GROUP BY a.door, a.principal) g
WHERE q.door = g.door AND q.principal = g.principal;

-- Returns the quota of refusals whose bodies are removed.
UPDATE refusal_quota q SET bytes = greatest(0, q.bytes - g.bytes)
FROM (SELECT a.door, a.principal, sum(octet_length(b.bytes))::bigint AS bytes
      FROM body b JOIN admission a ON a.seq = b.seq
      WHERE b.seq = ANY ($1::bigint[]) GROUP BY a.door, a.principal) g
WHERE q.door = g.door AND q.principal = g.principal;

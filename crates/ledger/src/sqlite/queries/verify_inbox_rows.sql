-- Inbox rows after the rowid ?1, with the matching columns of their admissions and claims. No upper bound:
-- a foreign row may have any rowid.
SELECT i.rowid AS seq, i.event_id, i.status, i.received_at, i.last_updated_at,
       coalesce(a.verdict = 'fresh' AND a.door = 'skyra', 0) AS is_ours,
       a.received_at AS admitted_at, a.facts, c.expires_at, c.lease IS NOT NULL AS is_held, c.seq IS NOT NULL AS is_claimed,
       f.status AS finished, f.finished_at,
       i.rowid <= coalesce((SELECT head FROM claim_head WHERE door = 'skyra'), 0) AS was_out
FROM event_inbox i
LEFT JOIN admission a ON a.seq = i.rowid
LEFT JOIN claim c ON c.door = 'skyra' AND c.seq = i.rowid
LEFT JOIN claim_finished f ON f.door = 'skyra' AND f.seq = i.rowid
WHERE i.rowid > ?1 ORDER BY i.rowid LIMIT ?2;

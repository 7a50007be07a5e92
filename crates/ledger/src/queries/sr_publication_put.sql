-- Upserts a publication attempt; only an attempt in flight is updated.
INSERT INTO sr_publication (run_id, attempt, message_id, kind, state, evidence, at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (run_id, attempt) DO UPDATE SET state = excluded.state, evidence = excluded.evidence
  WHERE sr_publication.state = 'in_flight'

-- Deletes the claims of removed admissions.
DELETE FROM claim_finished c USING unnest($1::text[], $2::bigint[]) AS w(door, seq)
WHERE c.door = w.door AND c.seq = w.seq;

-- Deletes admissions with their facts.
DELETE FROM admission WHERE seq = ANY ($1::bigint[]) RETURNING door, seq;

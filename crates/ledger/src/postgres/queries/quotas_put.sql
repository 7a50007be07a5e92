-- Stores the used refusal quota after this commit.
INSERT INTO refusal_quota (door, principal, rows, bytes)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (door, principal) DO UPDATE SET rows = excluded.rows, bytes = excluded.bytes;

-- The token of a transaction. Where the same one is being put in by another transaction, this waits
-- until that one has ended.
INSERT INTO claim_token (token, epoch, is_fence) VALUES ($1, $2, $3) ON CONFLICT (token) DO NOTHING;

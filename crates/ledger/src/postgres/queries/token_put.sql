-- Stores the token of a transaction. Waits for another open transaction with the same token to end.
INSERT INTO claim_token (token, epoch, is_fence) VALUES ($1, $2, $3) ON CONFLICT (token) DO NOTHING;

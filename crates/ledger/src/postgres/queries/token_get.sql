-- The transaction that stored a token.
SELECT is_fence FROM claim_token WHERE token = $1;

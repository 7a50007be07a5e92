-- Who put a token in.
SELECT is_fence FROM claim_token WHERE token = $1;

-- Deletes the tokens of this gate's resolved transactions.
DELETE FROM claim_token WHERE epoch = $1 AND token <> $2;

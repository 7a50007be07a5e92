-- The earlier transactions of this gate are all accounted for.
DELETE FROM claim_token WHERE epoch = $1 AND token <> $2;

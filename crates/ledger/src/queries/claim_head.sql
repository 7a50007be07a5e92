-- The seq up to which a stream was claimed.
SELECT head FROM claim_head WHERE door = $1;

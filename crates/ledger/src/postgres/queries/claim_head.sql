-- Up to where a stream was handed out.
SELECT head FROM claim_head WHERE door = $1;

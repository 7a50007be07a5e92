-- The place itself is gone.
DELETE FROM claim_finished WHERE door = ?1 AND seq = ?2;

-- Deletes the status of a removed admission.
DELETE FROM claim_finished WHERE door = ?1 AND seq = ?2;

-- Removes a deferred expiry check.
DELETE FROM retain_later WHERE due_at = ?1 AND seq = ?2;

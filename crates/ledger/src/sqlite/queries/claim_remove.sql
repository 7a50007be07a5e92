-- Removes the lease of an entry that is finished or expired.
DELETE FROM claim WHERE door = ?1 AND seq = ?2;

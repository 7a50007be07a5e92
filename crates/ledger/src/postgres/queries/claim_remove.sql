-- Removes the leases of entries that are finished or expired.
DELETE FROM claim WHERE door = $1 AND seq = ANY($2);

-- A place is finished, or gone.
DELETE FROM claim WHERE door = ?1 AND seq = ?2;

-- Places are finished, or gone.
DELETE FROM claim WHERE door = $1 AND seq = ANY($2);

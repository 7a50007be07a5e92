-- Removes a partition; does nothing if another gate removed it.
DELETE FROM growth WHERE parent = $1 AND lo = $2 RETURNING name;

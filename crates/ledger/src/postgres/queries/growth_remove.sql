-- A partition goes; nothing when another gate was first.
DELETE FROM growth WHERE parent = $1 AND lo = $2 RETURNING name;

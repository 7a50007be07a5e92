-- Who claimed this key, in the plain index.
SELECT seq FROM key_index WHERE key = $1;

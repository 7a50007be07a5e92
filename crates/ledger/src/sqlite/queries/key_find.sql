-- Who claimed this key, among the merged ones.
SELECT seq FROM key_index WHERE key = ?1;

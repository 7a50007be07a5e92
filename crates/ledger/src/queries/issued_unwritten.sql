-- Documents whose files could not be written.
SELECT * FROM issued WHERE is_unwritten <> 0 AND n > $1 ORDER BY n LIMIT $2;

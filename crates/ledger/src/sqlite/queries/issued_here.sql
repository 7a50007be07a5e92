-- Documents after ?2 that this process has to write: every one, because there is one gate.
SELECT n FROM issued WHERE n > ?2 ORDER BY n LIMIT ?3;

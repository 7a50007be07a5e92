-- Size of a body, without reading it.
SELECT length(bytes) FROM body WHERE seq = ?1;

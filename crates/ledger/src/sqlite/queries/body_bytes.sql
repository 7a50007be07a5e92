-- How large a body is, without reading it.
SELECT length(bytes) FROM body WHERE seq = ?1;

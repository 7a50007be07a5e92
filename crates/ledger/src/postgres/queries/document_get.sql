-- A projected document as it stands.
SELECT text FROM document WHERE projection = $1 AND entity = $2;

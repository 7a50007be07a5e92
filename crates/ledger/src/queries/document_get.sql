-- Returns a projected document.
SELECT text FROM document WHERE projection = $1 AND entity = $2;

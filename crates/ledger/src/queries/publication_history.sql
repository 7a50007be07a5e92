-- History of one publication.
SELECT * FROM record_publication_history WHERE n = $1 ORDER BY line;

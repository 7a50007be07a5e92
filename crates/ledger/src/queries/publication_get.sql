-- One publication.
SELECT * FROM record_publication WHERE n = $1;

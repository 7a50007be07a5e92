-- The publication of a revision.
SELECT * FROM record_publication WHERE record_id = $1 AND revision = $2;

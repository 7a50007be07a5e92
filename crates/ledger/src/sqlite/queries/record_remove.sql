-- Deletes a record whose opening event is now linked to another one. The history of its events stays.
DELETE FROM record WHERE record_id = ?1;

-- Deletes records whose opening events are now linked to others. The history of their events stays.
DELETE FROM record WHERE record_id = ANY($1);

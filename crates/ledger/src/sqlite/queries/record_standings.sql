-- How records stand on their way to the bus.
SELECT record_id, revision, offered, state FROM record
WHERE record_id IN (SELECT value FROM json_each(?1));

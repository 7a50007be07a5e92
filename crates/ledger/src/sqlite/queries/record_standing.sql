-- How a record stands on its way to the bus.
SELECT revision, offered, state FROM record WHERE record_id = ?1;

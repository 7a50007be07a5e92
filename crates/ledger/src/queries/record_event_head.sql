-- What names an event, once a person has accepted it.
UPDATE record_event SET head = $2 WHERE seq = $1;

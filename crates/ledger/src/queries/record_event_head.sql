-- Updates the identity of an event after an operator accepted it.
UPDATE record_event SET head = $2 WHERE seq = $1;

-- Records a sighting of an event.
UPDATE record_event SET seen_at = greatest(seen_at, $2) WHERE seq = $1;

-- Records a sighting of an event.
UPDATE record_event SET seen_at = max(seen_at, ?2) WHERE seq = ?1;

-- Records a sighting of an event.
UPDATE record_event SET seen_at = CASE WHEN seen_at < $2 THEN $2 ELSE seen_at END WHERE seq = $1;

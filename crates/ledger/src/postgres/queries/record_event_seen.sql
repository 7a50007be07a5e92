-- A copy of an event came; nothing of what it tells is new.
UPDATE record_event SET seen_at = greatest(seen_at, $2) WHERE seq = $1;

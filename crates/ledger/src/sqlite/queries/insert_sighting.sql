-- Inserts the sighting of a copy. Counters are computed from these rows, so nothing is updated in place.
INSERT INTO sighting (seq, admission, received_at, attempt, other) VALUES (?1, ?2, ?3, ?4, ?5);

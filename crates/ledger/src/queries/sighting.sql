-- A copy, and what it is a copy of.
SELECT admission, received_at, attempt, other FROM sighting WHERE seq = $1;

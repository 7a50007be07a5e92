-- A sighting with its admission.
SELECT admission, received_at, attempt, other FROM sighting WHERE seq = $1;

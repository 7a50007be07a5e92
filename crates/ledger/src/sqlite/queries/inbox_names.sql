-- What names the event at a place.
SELECT seq, facts FROM admission WHERE seq = ?1;

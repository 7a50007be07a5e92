-- What names the events at these places.
SELECT seq, facts FROM admission WHERE seq = ANY($1);

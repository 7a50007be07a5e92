-- How many bodies there are in a range of places.
SELECT count(*) AS count FROM body WHERE seq >= $1 AND seq < $2;

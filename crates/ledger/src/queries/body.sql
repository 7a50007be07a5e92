-- The raw body kept at a place.
SELECT bytes FROM body WHERE seq = $1;

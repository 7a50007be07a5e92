-- One single value that follows a clock: it grows, and goes back with a clock that is more than $3 behind
-- it. A smaller difference is between the clocks of two gates.
INSERT INTO meta (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE excluded.value > meta.value OR excluded.value < meta.value - $3;

-- Updates a time that follows a clock: it grows, and is set back only if the clock is more than $3 behind.
-- Smaller differences are normal between the clocks of two gates.
INSERT INTO meta (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE excluded.value > meta.value OR excluded.value < meta.value - $3;

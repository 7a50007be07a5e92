-- A gate stops: what it leaves may be taken over at once.
UPDATE gate SET alive_until = clock_timestamp() WHERE epoch = $1 AND alive_until > clock_timestamp();

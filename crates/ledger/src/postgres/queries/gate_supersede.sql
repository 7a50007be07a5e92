-- A gate starts that has a name of its own: whoever had it before is gone, or has to go.
UPDATE gate SET alive_until = clock_timestamp()
WHERE owner = $1 AND alive_until > clock_timestamp();

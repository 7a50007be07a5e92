-- Deletes the tokens of gates that have been dead for a day.
DELETE FROM claim_token t USING gate g
WHERE g.epoch = t.epoch AND g.alive_until < clock_timestamp() - interval '1 day';

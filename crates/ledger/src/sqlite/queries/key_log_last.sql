-- The newest claim that is not forgotten here.
SELECT max(seq) FROM key_log;

-- Where the newest run begins that is not forgotten here.
SELECT max(seq) FROM key_log;

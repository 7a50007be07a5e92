-- Server settings that a ledger requires.
SELECT current_setting('server_version_num')::bigint AS version,
       current_setting('server_encoding') AS encoding,
       pg_is_in_recovery() AS is_standby;

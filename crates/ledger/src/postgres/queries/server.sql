-- What decides whether this server can keep a ledger.
SELECT current_setting('server_version_num')::bigint AS version,
       current_setting('server_encoding') AS encoding,
       pg_is_in_recovery() AS is_standby;

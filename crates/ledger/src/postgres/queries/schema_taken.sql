-- A foreign table with the name of a ledger table.
SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
  ON n.oid = c.relnamespace
WHERE n.nspname = $1
  AND c.relname IN ('head', 'meta', 'gate', 'admission', 'body', 'sighting', 'key_index', 'document',
                    'claim', 'effect', 'issued', 'run', 'record', 'event_inbox')
ORDER BY c.relname LIMIT 1;

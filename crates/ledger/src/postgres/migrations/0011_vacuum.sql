-- Vacuum settings of the tables, by their usage. The defaults wait until a fifth of a table has
-- changed, too long for a hundred million rows, and freeze rows late and all at once.

-- Rows updated a few times: space for the next version on the same page, and a vacuum after a
-- twentieth has changed.
ALTER TABLE record_event SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE record SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE record_field SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE issued SET (autovacuum_vacuum_scale_factor = 0.05);

-- Queues: few rows at any time, often inserted and deleted.
ALTER TABLE claim SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE retain_later SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Rows updated by many commits.
ALTER TABLE run SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE claim_head SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE gate SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Append-only rows are frozen by the first vacuum. Transaction ids have 32 bits and every batch
-- uses some, so without this all tables would be read again every few days.
ALTER TABLE admission SET (autovacuum_freeze_min_age = 0);
ALTER TABLE effect_history SET (autovacuum_freeze_min_age = 0);
ALTER TABLE record_told SET (autovacuum_freeze_min_age = 0);
ALTER TABLE record_history SET (autovacuum_freeze_min_age = 0);
ALTER TABLE record_publication_history SET (autovacuum_freeze_min_age = 0);
DO $$
DECLARE
  part TEXT;
BEGIN
  FOR part IN SELECT 'key_index_' || n FROM generate_series(0, 15) n
              UNION ALL SELECT name FROM growth WHERE parent = 'sighting' LOOP
    EXECUTE format('ALTER TABLE %I SET (autovacuum_freeze_min_age = 0)', part);
  END LOOP;
  FOR part IN SELECT name FROM growth WHERE parent = 'body' LOOP
    EXECUTE format('ALTER TABLE %I SET (autovacuum_freeze_min_age = 0,
                                        toast.autovacuum_freeze_min_age = 0)', part);
  END LOOP;
  -- The inbox may be an existing foreign table.
  IF (SELECT pg_has_role(relowner, 'MEMBER') FROM pg_class WHERE oid = 'event_inbox'::regclass
        AND relkind = 'r') THEN
    ALTER TABLE event_inbox SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
  END IF;
END $$;

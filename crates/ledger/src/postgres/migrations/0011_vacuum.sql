-- What vacuum is to do with tables, by how they are used. The defaults wait for a fifth of a table to
-- change, which is too long for a table of a hundred million rows, and freeze rows late, all at once.

-- Rows that are changed a few times and then rest: room for the next version beside the first, and a
-- run after a twentieth has changed.
ALTER TABLE record_event SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE record SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE record_field SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE issued SET (autovacuum_vacuum_scale_factor = 0.05);

-- Queues: few rows at any time, of which many come and go.
ALTER TABLE claim SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE retain_later SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Single rows that are changed by every commit that is about them.
ALTER TABLE run SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE claim_head SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE gate SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Rows that are only added are frozen when vacuum first sees them: transactions are numbered with 32
-- bits, and a gate uses some for every group, so without this everything is read again every few days.
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

-- last_seen_at is never before first_seen_at, although concurrent copies may be recorded in another
-- order and clocks may be set back.
DROP VIEW receipt;
CREATE VIEW receipt AS
SELECT a.seq, a.door, a.principal, a.verdict, a.key, a.digest, a.received_at, a.attempt, a.first,
       a.code, a.message, a.facts,
       (SELECT count(*) FROM sighting s WHERE s.admission = a.seq) AS duplicate_count,
       max(a.received_at, coalesce((SELECT max(s.received_at) FROM sighting s
                                    WHERE s.admission = a.seq), a.received_at)) AS last_seen_at,
       coalesce((SELECT s.attempt FROM sighting s WHERE s.admission = a.seq
                 ORDER BY s.seq DESC LIMIT 1), a.attempt) AS last_attempt
FROM admission a;

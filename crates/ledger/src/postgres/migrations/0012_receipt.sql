-- last_seen_at is never before first_seen_at, although concurrent copies may be recorded in another
-- order and clocks may be set back.
CREATE OR REPLACE VIEW receipt AS
SELECT a.seq, a.door, a.principal, a.verdict, a.key, a.digest, a.received_at, a.attempt, a.first,
       a.code, a.message, a.facts,
       (SELECT count(*) FROM sighting s
        WHERE s.admission = a.seq AND s.seq > a.seq) AS duplicate_count,
       greatest(a.received_at, (SELECT max(s.received_at) FROM sighting s
                                WHERE s.admission = a.seq AND s.seq > a.seq)) AS last_seen_at,
       coalesce((SELECT s.attempt FROM sighting s WHERE s.admission = a.seq AND s.seq > a.seq
                 ORDER BY s.seq DESC LIMIT 1), a.attempt) AS last_attempt
FROM admission a;

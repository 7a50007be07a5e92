-- Whether an entry can be claimed. A lease beyond $3 counts as expired.
SELECT EXISTS (SELECT 1 FROM claim WHERE door = $1 AND expires_at <= $2)
    OR EXISTS (SELECT 1 FROM claim WHERE door = $1 AND expires_at > $3)
    OR EXISTS (SELECT 1 FROM admission a
               WHERE a.door = $1
                 AND a.seq > coalesce((SELECT head FROM claim_head WHERE door = $1), 0)
                 AND a.verdict IN ('fresh', 'revision')
                 AND (a.door = 'skyra' OR (a.door >= 'events/' AND a.door < 'events0')))
    AS is_some;

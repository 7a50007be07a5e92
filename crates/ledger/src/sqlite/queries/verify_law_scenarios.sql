-- Scenario runs with inconsistent rows. Receipts of instances are of an output and name no run.
SELECT CAST(NULL AS BIGINT) AS seq, 'the scenario run ' || r.run_id || ' has no key' AS what
FROM sr_run r WHERE NOT EXISTS (SELECT 1 FROM sr_run_equivalence q WHERE q.run_id = r.run_id)
UNION ALL
SELECT NULL, 'the key ' || q.run_equivalence_key || ' stands for ' || q.run_id || ', which does not exist'
FROM sr_run_equivalence q WHERE NOT EXISTS (SELECT 1 FROM sr_run r WHERE r.run_id = q.run_id)
UNION ALL
SELECT NULL, 'the scenario run ' || r.run_id || ' is ' || r.state || CASE
    WHEN r.state = 'READY' THEN ', and its facts or its signal are missing'
    WHEN r.shown > r.version THEN ', and its files show a version that does not exist'
    ELSE ', without a reason, or not a known state' END
FROM sr_run r
WHERE r.state NOT IN ('OPEN', 'PLANNED', 'EXECUTING', 'WAITING_EVIDENCE', 'READY', 'FAILED', 'QUARANTINED')
   OR (r.state IN ('FAILED', 'QUARANTINED') AND r.reason_code IS NULL)
   OR r.shown > r.version
   OR (r.state = 'READY' AND 2 <> (SELECT count(*) FROM sr_run_document d WHERE d.run_id = r.run_id
                                     AND d.kind IN ('run_facts_view', 'ready_signal')))
UNION ALL
SELECT NULL, d.kind || ' of ' || d.run_id || ' has no such run, or names another one'
FROM sr_run_document d
WHERE (d.kind NOT LIKE 'instance_receipt:%' AND CASE WHEN json_valid(d.text) THEN json_extract(d.text, '$.run_id') END IS NOT d.run_id)
  OR NOT EXISTS (SELECT 1 FROM sr_run r WHERE r.run_id = d.run_id)
UNION ALL
SELECT NULL, 'the event ' || v.event_id || ' is of ' || v.run_id || ', which does not exist'
FROM sr_run_event v WHERE NOT EXISTS (SELECT 1 FROM sr_run r WHERE r.run_id = v.run_id)
UNION ALL
SELECT NULL, 'the publication ' || p.message_id || ' is of ' || p.run_id || ', which does not exist'
FROM sr_publication p WHERE NOT EXISTS (SELECT 1 FROM sr_run r WHERE r.run_id = p.run_id)
ORDER BY 2;

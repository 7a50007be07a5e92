-- Receipts of a run in the order of their numbers, after ?2, with the columns of a run report.
SELECT n, id, decision, reason, event_type, path, is_unwritten, superseded_by, released_how,
       CAST(json_extract(text, '$.producer') AS TEXT)        AS producer,
       CAST(json_extract(text, '$.scenario_run_id') AS TEXT) AS scenario_run,
       json_extract(text, '$.eb_ref.topic') IS NOT NULL
         AND json_extract(text, '$.eb_ref.offset') IS NOT NULL AS has_reference,
       CAST(json_extract(text, '$.policy_rev.revision') AS TEXT)       AS policy_revision,
       CAST(json_extract(text, '$.policy_rev.content_digest') AS TEXT) AS policy_digest
FROM issued INDEXED BY issued_run
WHERE run = ?1 AND kind = 'receipt' AND n > ?2
ORDER BY n LIMIT ?3;

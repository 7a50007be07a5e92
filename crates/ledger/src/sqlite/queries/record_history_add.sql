-- Appends a step to the history of an event.
INSERT INTO record_history (seq, n, at, attempt, from_state, to_state, source, fingerprint_kind,
                            round_fingerprint, link_status, confidence, reason_code, record_id)
VALUES (?1, (SELECT coalesce(max(n), 0) + 1 FROM record_history WHERE seq = ?1), ?2, ?3, ?4, ?5, ?6,
        ?7, ?8, ?9, ?10, ?11, ?12);

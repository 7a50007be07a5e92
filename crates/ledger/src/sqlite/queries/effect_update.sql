-- Updates the state of an effect. The reply is written only when the first attempt is settled.
UPDATE effect
SET state = ?2, attempt = ?3, epoch = ?4, evidence = ?5, changed_at = ?6,
    reply_status = coalesce(reply_status, ?7), reply = coalesce(reply, ?8)
WHERE seq = ?1;

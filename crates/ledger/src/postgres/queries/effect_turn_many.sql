-- Updates the states of effects. The reply is written only when the first attempt is settled; kind and
-- plan never change.
UPDATE effect e
SET state = u.state, attempt = u.attempt, epoch = u.epoch, evidence = u.evidence,
    changed_at = u.changed_at, reply_status = coalesce(e.reply_status, u.reply_status),
    reply = coalesce(e.reply, u.reply)
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
            $7::text[], $8::bigint[], $9::bytea[], $10::bigint[])
     AS u(seq, kind, plan, state, attempt, epoch, evidence, reply_status, reply, changed_at)
WHERE e.seq = u.seq;

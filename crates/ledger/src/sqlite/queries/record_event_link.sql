-- Updates the link of an event.
UPDATE record_event
SET number = ?2, state = ?3, link_status = ?4, reason_code = ?5, confidence = ?6, record_id = ?7,
    link = ?8
WHERE seq = ?1;

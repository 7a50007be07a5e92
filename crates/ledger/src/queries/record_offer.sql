-- Claims a revision for publishing, so that no other gate can.
UPDATE record SET offered = revision
WHERE record_id = $1 AND door = $2 AND revision = $3 AND revision > offered
  AND state <> 'linked_round_id';

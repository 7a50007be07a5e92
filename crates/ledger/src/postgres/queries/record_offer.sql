-- Takes a revision as the one that is handed to the bus: nobody else can.
UPDATE record SET offered = revision
WHERE record_id = $1 AND door = $2 AND revision = $3 AND revision > offered
  AND state <> 'linked_round_id';

-- Records that are no more: what opened them belongs to others. Their events keep their history.
DELETE FROM record WHERE record_id = ANY($1);

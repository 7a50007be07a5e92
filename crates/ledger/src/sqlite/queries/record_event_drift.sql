-- Records whether the rows of an event could be stored.
UPDATE record_event SET drift = ?2 WHERE seq = ?1 AND drift IS NOT ?2;

-- A person has retried it or wants it gone.
DELETE FROM invalid_envelope WHERE number = ?1;

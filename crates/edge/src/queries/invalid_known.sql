-- Whether this envelope is stored already.
SELECT 1 FROM invalid_envelope WHERE payload_sha256 = ?1;

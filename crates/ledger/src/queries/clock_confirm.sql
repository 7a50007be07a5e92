-- Records an operator's confirmation of a clock.
INSERT INTO clock_confirmation (confirmed_at, trusted_at, principal, reason) VALUES ($1, $2, $3, $4);

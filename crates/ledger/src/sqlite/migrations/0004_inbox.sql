-- The inbox of the skyra door, with the table, key and index names of its consumers. A row is
-- inserted in the commit of its admission and changed only by claims. Times are RFC 3339, UTC;
-- status is received, claimed, done or failed; payload is the envelope.

CREATE TABLE IF NOT EXISTS event_inbox (
  event_id TEXT PRIMARY KEY,
  status TEXT NOT NULL,
  received_at TEXT NOT NULL,
  last_updated_at TEXT NOT NULL,
  payload TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_event_inbox_status ON event_inbox(status);
CREATE INDEX IF NOT EXISTS idx_event_inbox_received_at ON event_inbox(received_at);

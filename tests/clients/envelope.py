"""Envelopes as edge devices send them, and what an ACK and a NACK look like."""

import json


def envelope(n):
    return json.dumps(
        {
            "schema_version": 1,
            "event_id": f"evt_python_{n:06}",
            "type": "proposal.task",
            "ts": "2026-02-16T23:10:21Z",
            "session_id": "sess_1",
            "device_id": "pi-livingroom-01",
            "payload": {"intent": "server.log_summary", "confidence": 0.84},
        }
    )


def is_ack(answer, n):
    return (
        set(answer) == {"event_id", "ack_ts", "status"}
        and answer["status"] == "stored"
        and answer["event_id"] == f"evt_python_{n:06}"
    )

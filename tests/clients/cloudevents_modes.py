"""Sends events with the public CloudEvents SDK, in every mode, to the stream at argv[1]."""

import json
import sys
from datetime import datetime, timezone

from door import events_of, post, skip_without

skip_without("cloudevents")

from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

URL = sys.argv[1]


def event(event_id, data, **more):
    attributes = {
        "id": event_id,
        "source": "https://shop.example/orders",
        "type": "com.example.order.paid",
        "time": datetime(2026, 2, 19, 18, 14, 2, 123456, tzinfo=timezone.utc),
        "subject": "café № 7 \"quoted\" 100%",
        "datacontenttype": "application/json",
        **more,
    }
    return CloudEvent(attributes=attributes, data=data)


def send(message):
    return post(URL, dict(message.headers), bytes(message.body))


def structured(made):
    return send(http.to_structured_event(made))


def binary(made):
    return send(http.to_binary_event(made))


# One event, whichever way it travels.
one = event("one", {"total": 12.5, "items": [1, 2, 3]}, partition="a-1")
first = structured(one)
assert first.status == 201, first
assert "idempotent-replayed" not in first.headers, first
for copy in (structured(one), binary(one)):
    assert copy.status == 201 and copy.body == first.body, (copy, first)
    assert copy.headers["idempotent-replayed"] == "true", copy

# The other way round, and without data.
two = event("two", {"n": 2})
first = binary(two)
assert first.status == 201, first
assert structured(two).body == first.body

# The same source and id with other content is no copy.
reused = structured(event("two", {"n": 3}))
assert reused.status == 422, reused
problem = json.loads(reused.body)
assert problem["error"]["code"] == "idempotency_key_reused", problem
assert problem["first_receipt_id"] == json.loads(first.body)["receipt_id"], problem

# A batch is an array of what the SDK writes for one.
batch = [http.to_structured_event(event(name, {"n": 3})).body for name in ("three", "four", "three")]
many = post(
    URL,
    {"content-type": "application/cloudevents-batch+json"},
    b"[" + b",".join(bytes(body) for body in batch) + b"]",
)
assert many.status == 200, many
results = json.loads(many.body)
assert [result["status"] for result in results] == [201, 201, 201], results
assert [result["replayed"] for result in results] == [False, False, True], results

# What a consumer reads back is what the SDK sent.
seen = events_of(URL)
assert [one["attributes"]["id"] for one in seen] == ["one", "two", "three", "four"], seen
assert seen[0]["attributes"]["subject"] == "café № 7 \"quoted\" 100%", seen[0]
assert seen[1]["attributes"]["subject"] == "café № 7 \"quoted\" 100%", seen[1]
assert seen[0]["data"] == {"total": 12.5, "items": [1, 2, 3]}, seen[0]
assert seen[1]["data"] == {"n": 2}, seen[1]
print("ok")

"""Signs with the public Standard Webhooks library and posts to the stream at argv[1].

The gate knows the secrets argv[2] and argv[3].
"""

import json
import sys
from datetime import datetime, timedelta, timezone

from door import events_of, post, skip_without

skip_without("standardwebhooks")

from standardwebhooks.webhooks import Webhook

URL, OLD, NEW = sys.argv[1:4]
BODY = '{"type": "invoice.paid",  "data": {"total": 5.0, "who": "Zoë"}}'


def signed(message_id, body=BODY, secrets=(NEW,), at=None):
    at = at or datetime.now(tz=timezone.utc)
    signatures = [Webhook(secret).sign(message_id, at, body) for secret in secrets]
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


# Either secret counts while they are rotated, and webhook-id names the event.
first = post(URL, signed("msg_1"), BODY.encode())
assert first.status == 201, first
again = post(URL, signed("msg_1", secrets=(OLD,), at=datetime.now(tz=timezone.utc) - timedelta(seconds=9)), BODY.encode())
assert again.status == 201 and again.body == first.body, again
assert again.headers["idempotent-replayed"] == "true", again
both = post(URL, signed("msg_2", secrets=(OLD, NEW)), BODY.encode())
assert both.status == 201 and both.body != first.body, both

# A signature covers the bytes, the id and the time.
stranger = "whsec_" + "QUJD" * 8
late = datetime.now(tz=timezone.utc) - timedelta(minutes=6)
moved = signed("msg_3")
moved["webhook-id"] = "msg_4"
for headers, body in [
    (signed("msg_3", secrets=(stranger,)), BODY),
    (signed("msg_3"), BODY.replace(":  ", ": ").replace(",  ", ", ")),
    (signed("msg_3", at=late), BODY),
    (moved, BODY),
    ({"content-type": "application/json"}, BODY),
]:
    answer = post(URL, headers, body.encode())
    assert answer.status == 401, answer
    assert json.loads(answer.body)["error"]["code"] == "unauthorized", answer

# Without a valid signature, the reply does not reveal whether an id is known.
unsigned = signed("msg_1", secrets=(stranger,))
assert post(URL, unsigned, b"{}").status == 401

reused = post(URL, signed("msg_1", body="{}"), b"{}")
assert reused.status == 422, reused

seen = events_of(URL)
assert [one["webhook_id"] for one in seen] == ["msg_1", "msg_2"], seen
assert seen[0]["data"]["data"]["who"] == "Zoë", seen[0]
print("ok")

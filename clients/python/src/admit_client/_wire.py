"""Requests and replies of the doors: freezes events and classifies replies. No input or output."""

from __future__ import annotations

import datetime
import email.utils
import json
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Union

RETRY_AFTER_MAX = 600.0

_KEY = re.compile(r'[!#-\[\]-~]{1,255}\Z')
_STREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")

# Refusals of the sender or the address: the gate did not look at the event.
_NOT_OF_THE_EVENT = {"unauthorized", "forbidden", "not_found", "method_not_allowed"}


@dataclass(frozen=True)
class Accepted:
    """The gate has the event. `duplicate` is None where the door does not say."""

    duplicate: Optional[bool]
    receipt: Dict[str, Any]


@dataclass(frozen=True)
class Rejected:
    """The gate refused the event for good."""

    code: str
    message: str
    status: int


@dataclass(frozen=True)
class Pending:
    """Unknown so far; `expired` events are not sent again."""

    reason: str
    attempts: int = 0
    expired: bool = False


Outcome = Union[Accepted, Rejected, Pending]


@dataclass(frozen=True)
class Fault:
    """An attempt without a decision, and the least pause before the next."""

    reason: str
    retry_after: float = 0.0


@dataclass
class Frozen:
    """An event as it is sent, the same at every attempt. Times are in seconds since 1970."""

    id: str
    at: float
    door: str
    path: str
    type: str
    key: str
    body: bytes
    occurred: Optional[float] = None


def new_id() -> str:
    return uuid.uuid4().hex


def freeze_event(
    data: Any,
    stream: str = "default",
    key: Optional[str] = None,
    content_type: Optional[str] = None,
    occurred_at: Optional[float] = None,
) -> Frozen:
    if not _STREAM.match(stream):
        raise ValueError(f"{stream!r} is not the name of a stream")
    if isinstance(data, (bytes, bytearray)):
        if not content_type:
            raise ValueError("bytes need a content_type")
        body = bytes(data)
    else:
        body = _json(data)
    return _frozen("events", f"/v1/events/{stream}", key if key is not None else new_id(), body, occurred_at, content_type)


def freeze_skyra(envelope: Mapping[str, Any], occurred_at: Optional[float] = None) -> Frozen:
    whole = dict(envelope)
    whole.setdefault("event_id", f"evt_{new_id()}")
    now = datetime.datetime.now(datetime.timezone.utc)
    whole.setdefault("ts", now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z")
    return _frozen("skyra", "/v1/ingress", whole["event_id"], _json(whole), occurred_at)


def freeze_pixel_control(envelope: Mapping[str, Any]) -> Frozen:
    occurred = envelope.get("source_time")
    is_time = isinstance(occurred, (int, float)) and not isinstance(occurred, bool) and occurred > 0
    transport = {"attempt": 1, "max_attempts": 1, "retry_backoff_ms": 0, "auth_mode": "none"}
    body = _json({"envelope": dict(envelope), "transport": transport})
    key = envelope.get("idempotency_key")
    return _frozen("pixel-control", "/plugin/events", key, body, float(occurred) if is_time else None)


def _frozen(door, path, key, body, occurred, content_type=None) -> Frozen:
    if not isinstance(key, str) or not _KEY.match(key):
        raise ValueError("a key has 1 to 255 visible ASCII characters, without quotes and backslashes")
    if not body:
        raise ValueError("an event has at least one byte")
    return Frozen(new_id(), time.time(), door, path, content_type or "application/json", key, body, occurred)


def _json(data: Any) -> bytes:
    # UnicodeEncodeError (lone surrogates) is a ValueError.
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise ValueError(f"the event is not JSON: {error}") from error


def request_headers(event: Frozen, key: Optional[str]) -> Dict[str, str]:
    headers = {"Content-Type": event.type, **common_headers(key)}
    if event.door == "events":
        headers["Idempotency-Key"] = event.key
    return headers


def common_headers(key: Optional[str]) -> Dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": "admit-client-python/0.1.0"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers


def classify(event: Frozen, status: int, headers: Mapping[str, str], body: bytes) -> Union[Accepted, Rejected, Fault]:
    """Classifies a reply; `headers` has names in lower case."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        reply = None
    reply = reply if isinstance(reply, dict) else {}
    accepted = _accepted(event, status, headers, reply)
    if accepted is not None:
        return accepted
    problem = reply.get("error")
    final_status = 400 <= status <= 499
    if event.door == "pixel-control" and status == 200:
        ack = reply.get("ack")
        problem = ack if isinstance(ack, dict) and ack.get("status") == "rejected" else None
        final_status = True
    problem = problem if isinstance(problem, dict) else {}
    code = problem.get("code")
    is_final = final_status and problem.get("retryable") is False and isinstance(code, str)
    if event.door == "skyra" and reply.get("event_id") not in (None, event.key):
        is_final = False
    if is_final and code not in _NOT_OF_THE_EVENT:
        return Rejected(code, str(problem.get("message", "")), status)
    reason = code if isinstance(code, str) else f"http_{status}"
    return Fault(reason, retry_after(headers, problem))


def _accepted(event, status, headers, reply) -> Optional[Accepted]:
    if event.door == "events":
        named = isinstance(reply.get("receipt_id"), str) and isinstance(reply.get("key"), str)
        if status in (200, 201) and named:
            return Accepted(headers.get("idempotent-replayed", "").lower() == "true", reply)
    elif event.door == "skyra":
        if status == 200 and reply.get("status") == "stored" and reply.get("event_id") == event.key:
            return Accepted(None, reply)
    elif status == 200 and isinstance(reply.get("ack"), dict):
        ack = reply["ack"]
        if ack.get("status") == "accepted" and ack.get("idempotency_key") == event.key:
            return Accepted(ack.get("disposition") == "duplicate", reply)
    return None


def retry_after(headers: Mapping[str, str], problem: Mapping[str, Any]) -> float:
    """The least pause that a reply demands, in seconds."""
    text = headers.get("retry-after")
    seconds: Any = problem.get("retry_after_seconds", 0)
    if text is not None:
        text = text.strip()
        if re.match(r"[0-9]{1,15}\Z", text):
            seconds = float(text)
        else:
            try:
                seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
            except (TypeError, ValueError, OverflowError):
                pass
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return 0.0
    return float(min(max(seconds, 0), RETRY_AFTER_MAX))


def jitter(random: Any, attempt: int, base: float, cap: float) -> float:
    """Full jitter: even between 0 and the doubled base, limited by the cap."""
    return random.uniform(0.0, min(cap, base * 2.0 ** min(attempt - 1, 60)))

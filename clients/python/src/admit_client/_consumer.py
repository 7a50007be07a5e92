"""The consumer: claims events, iterates over them and settles them."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any, Dict, Iterator, List, Optional

from ._http import NoReply
from ._wire import jitter, retry_after


class LeaseLost(Exception):
    """The lease does not hold the event any more; another consumer may have it."""


class Refused(Exception):
    """The gate refused a request of a consumer; a retry does not help."""

    def __init__(self, code: str, message: str, status: int):
        super().__init__(f"{code}: {message}")
        self.code, self.status = code, status


class Claimed:
    """An event that is leased to this consumer. `data` is the payload of an inbox entry."""

    def __init__(self, link: "Link", path: str, entry: Dict[str, Any], lease_seconds: int):
        self._link, self._path, self._lease_seconds = link, path, lease_seconds
        self.entry = entry
        self.id: str = entry["receipt_id"] if "receipt_id" in entry and "event_id" not in entry else entry["event_id"]
        self.data: Any = entry.get("data", entry.get("payload"))
        self.attempt: int = entry.get("attempt", 1)
        self.is_settled = False
        self._expires = _ends(entry["lease_expires_at"], lease_seconds)

    def ack(self) -> None:
        """Finished."""
        self._settle("done")

    def fail(self) -> None:
        """Finished without success; not handed out again."""
        self._settle("failed")

    def release(self) -> None:
        """Available again at once."""
        self._settle("released")

    def extend(self) -> None:
        """Leased for another `lease_seconds` from now."""
        self._settle("extended")

    def _settle(self, status: str) -> None:
        change: Dict[str, Any] = {"status": status, "lease": self.entry["lease"]}
        if status == "extended":
            change["lease_seconds"] = self._lease_seconds
        answer = self._link.call(f"{self._path}/{self.id}", change, self._expires)
        if status == "extended":
            self._expires = _ends(answer.get("lease_expires_at", ""), self._lease_seconds)
        else:
            self.is_settled = True


class Link:
    """Requests of a consumer, repeated after faults until a deadline."""

    def __init__(self, connection, headers, random, backoff):
        self._connection = connection
        self._headers = {**headers, "Content-Type": "application/json"}
        self.random, self.backoff = random, backoff

    def call(self, path: str, content: Dict[str, Any], deadline: Optional[float]) -> Dict[str, Any]:
        """`deadline` is monotonic; after it, `LeaseLost` is raised."""
        body = json.dumps(content).encode()
        attempt = 0
        while deadline is None or time.monotonic() < deadline:
            attempt += 1
            least = 0.0
            try:
                status, headers, text = self._connection.post(path, self._headers, body)
                answer = _object(text)
                if status == 200 and answer:
                    return answer
                problem = answer.get("error")
                problem = problem if isinstance(problem, dict) else {}
                if 400 <= status <= 499 and problem.get("retryable") is False:
                    _refuse(status, problem)
                least = retry_after(headers, problem)
            except NoReply:
                pass
            pause = least + jitter(self.random, attempt, *self.backoff)
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
        raise LeaseLost("the lease expired before the gate confirmed the change; claim the event again")

    def close(self) -> None:
        self._connection.close()


def consume(
    parts: Any,
    path: str,
    consumer: str,
    *,
    max: int = 10,
    lease_seconds: int = 60,
    poll: float = 1.0,
    until_empty: bool = False,
) -> Iterator[Claimed]:
    """Iterates over claimed events; those that were not handed out are released at the end."""
    link = Link(*parts)
    waiting: List[Claimed] = []
    wanted = {"consumer": consumer, "max": max, "lease_seconds": lease_seconds}
    try:
        while True:
            entries = link.call(f"{path}/claim", wanted, None).get("events", [])
            waiting = [Claimed(link, path, entry, lease_seconds) for entry in entries]
            if not waiting and until_empty:
                return
            if not waiting:
                time.sleep(link.random.uniform(0.0, poll))
            while waiting:
                yield waiting.pop(0)
    finally:
        for claimed in waiting:
            try:
                claimed.release()
            except (LeaseLost, Refused):
                pass
        link.close()


def _refuse(status: int, problem: Dict[str, Any]) -> None:
    code, message = str(problem.get("code")), str(problem.get("message", ""))
    if code == "lease_lost":
        raise LeaseLost(message)
    raise Refused(code, message, status)


def _object(text: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _ends(text: str, lease_seconds: int) -> float:
    """Monotonic end of a lease: the earlier of the gate's time and the requested length."""
    try:
        until = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
        left = until.replace(tzinfo=datetime.timezone.utc).timestamp() - time.time()
    except ValueError:
        left = lease_seconds
    return time.monotonic() + min(left, lease_seconds)

"""The producer: queue, sender threads, outcomes."""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from . import _wire
from ._consumer import Claimed, consume
from ._http import Connection, NoReply
from ._outbox import Outbox
from ._wire import Accepted, Fault, Frozen, Outcome, Pending, Rejected

_LOG = logging.getLogger("admit_client")

OnOutcome = Callable[[Frozen, Outcome], None]


class Full(Exception):
    """The queue is full; the event was not taken."""


class Emission:
    """An emitted event and what is known about it."""

    def __init__(self, event: Frozen, client: "Client"):
        self.event = event
        self._client = client
        self._outcome: Outcome = Pending("not_sent")
        self._attempts = 0

    @property
    def id(self) -> str:
        return self.event.id

    @property
    def key(self) -> str:
        return self.event.key

    @property
    def outcome(self) -> Outcome:
        return self._outcome

    def wait(self, seconds: Optional[float] = None) -> Outcome:
        """Returns the outcome; `Pending` when the time is over, the event expired or the client is closed."""
        client = self._client

        def is_over():
            return not isinstance(self._outcome, Pending) or self._outcome.expired or client._closed

        with client._changed:
            client._changed.wait_for(is_over, seconds)
            return self._outcome


class Client:
    """Sends events to a gate until each is accepted or refused. Safe for several threads."""

    def __init__(
        self,
        url: str,
        key: Optional[str] = None,
        *,
        outbox: Optional[str] = None,
        horizon: Optional[float] = None,
        timeout: float = 10.0,
        backoff_base: float = 0.25,
        backoff_cap: float = 30.0,
        concurrency: int = 4,
        pending_max: int = 10_000,
        pending_bytes_max: int = 64 * 1024 * 1024,
        on_outcome: Optional[OnOutcome] = None,
        rng: Any = None,
    ):
        if concurrency < 1 or timeout <= 0:
            raise ValueError("concurrency and timeout must be positive")
        self._url, self._key, self._timeout = url, key, timeout
        self._horizon, self._on_outcome = horizon, on_outcome
        self._backoff = (backoff_base, backoff_cap)
        self._limits = (pending_max, pending_bytes_max)
        self._random = rng or random.Random()
        self._changed = threading.Condition()
        self._kept: Dict[str, Emission] = {}
        self._bytes = 0
        self._due: List[Tuple[float, int, Emission]] = []
        self._numbers = itertools.count()
        self._in_flight = 0
        self._paused_until = 0.0
        self._failed_links = 0
        self._closed = False
        connections = [Connection(url, timeout) for _ in range(concurrency)]
        self._outbox = Outbox(outbox) if outbox else None
        self._recover()
        self._threads = [threading.Thread(target=self._work, args=(one,), daemon=True) for one in connections]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def emit(
        self,
        data: Any,
        stream: str = "default",
        key: Optional[str] = None,
        *,
        content_type: Optional[str] = None,
        occurred_at: Optional[float] = None,
    ) -> Emission:
        """Queues an event for an `events` stream; with an outbox, returns when it is on disk."""
        return self._take(_wire.freeze_event(data, stream, key, content_type, occurred_at))

    def emit_skyra(self, envelope: Mapping[str, Any], *, occurred_at: Optional[float] = None) -> Emission:
        """Queues an envelope for the `skyra` door."""
        return self._take(_wire.freeze_skyra(envelope, occurred_at))

    def emit_pixel_control(self, envelope: Mapping[str, Any]) -> Emission:
        """Queues an envelope for the `pixel-control` door."""
        return self._take(_wire.freeze_pixel_control(envelope))

    def pending(self) -> List[Emission]:
        """Events without a final outcome, also the expired ones."""
        with self._changed:
            return [one for one in self._kept.values() if isinstance(one.outcome, Pending)]

    def rejected(self) -> List[Emission]:
        """Refused events in the outbox."""
        with self._changed:
            return [one for one in self._kept.values() if isinstance(one.outcome, Rejected)]

    def discard(self, id: str) -> None:
        """Removes a rejected or expired event; any other raises `KeyError`."""
        with self._changed:
            emission = self._kept.get(id)
            outcome = emission.outcome if emission else None
            if not isinstance(outcome, Rejected) and not (isinstance(outcome, Pending) and outcome.expired):
                raise KeyError(f"{id} is neither rejected nor expired")
            self._remove(emission)

    def flush(self, seconds: Optional[float] = None) -> int:
        """Waits until no event is queued or in flight; returns how many are."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._unfinished() == 0, seconds)
            return self._unfinished()

    def close(self, seconds: float = 10.0) -> int:
        """Flushes and ends the client; returns the number of events that are still pending."""
        left = self.flush(seconds)
        with self._changed:
            if self._closed:
                return left
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(self._timeout + 1)
        with self._changed:
            if self._outbox:
                self._outbox.close()
            return self._unfinished()

    def consume(self, stream: str = "default", consumer: str = "python", **options: Any) -> Iterator[Claimed]:
        """Iterates over claimed events of a stream; options: max, lease_seconds, poll, until_empty."""
        _wire.freeze_event(None, stream)
        return consume(self._link(), f"/v1/events/{stream}", consumer, **options)

    def consume_inbox(self, consumer: str = "python", **options: Any) -> Iterator[Claimed]:
        """Iterates over claimed envelopes of the inbox."""
        return consume(self._link(), "/v1/inbox", consumer, **options)

    def _link(self):
        return Connection(self._url, self._timeout), _wire.common_headers(self._key), self._random, self._backoff

    def _recover(self) -> None:
        for event, rejected in list(self._outbox.live.values()) if self._outbox else []:
            emission = Emission(event, self)
            self._keep(emission)
            if rejected:
                emission._outcome = rejected
            else:
                self._schedule(emission, 0.0)

    def _take(self, event: Frozen) -> Emission:
        with self._changed:
            if self._closed:
                raise RuntimeError("the client is closed")
            count, size = self._limits
            if len(self._kept) >= count or self._bytes + len(event.body) > size:
                refused = sum(isinstance(one.outcome, Rejected) for one in self._kept.values())
                raise Full(
                    f"{len(self._kept)} events of {self._bytes} bytes are queued, {refused} of them rejected; "
                    "this event was not taken. Retry later, or discard the rejected ones"
                )
            if self._outbox:
                self._outbox.put(event)
            emission = Emission(event, self)
            self._keep(emission)
            self._schedule(emission, 0.0)
            self._changed.notify_all()
            return emission

    def _keep(self, emission: Emission) -> None:
        self._kept[emission.id] = emission
        self._bytes += len(emission.event.body)

    def _remove(self, emission: Emission) -> None:
        del self._kept[emission.id]
        self._bytes -= len(emission.event.body)
        if self._outbox:
            self._outbox.end(emission.id)

    def _schedule(self, emission: Emission, pause: float) -> None:
        heapq.heappush(self._due, (time.monotonic() + pause, next(self._numbers), emission))

    def _unfinished(self) -> int:
        return len(self._due) + self._in_flight

    def _work(self, connection: Connection) -> None:
        try:
            while True:
                emission = self._next()
                if emission is None:
                    return
                self._settle(emission, self._attempt(connection, emission.event))
        finally:
            connection.close()

    def _next(self) -> Optional[Emission]:
        """Waits for an event that is due; None when the client is closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                due = max(self._due[0][0], self._paused_until) if self._due else None
                if due is not None and due <= now:
                    emission = heapq.heappop(self._due)[2]
                    if not self._expire(emission):
                        self._in_flight += 1
                        return emission
                    continue
                self._changed.wait(None if due is None else due - now)
            return None

    def _expire(self, emission: Emission) -> bool:
        event = emission.event
        since = event.at if event.occurred is None else event.occurred
        if self._horizon is None or time.time() - since < self._horizon:
            return False
        emission._outcome = Pending("outside_horizon", emission._attempts, True)
        self._changed.notify_all()
        return True

    def _attempt(self, connection: Connection, event: Frozen):
        headers = _wire.request_headers(event, self._key)
        try:
            status, names, body = connection.post(event.path, headers, event.body)
        except NoReply as error:
            return error
        return _wire.classify(event, status, names, body), status

    def _settle(self, emission: Emission, result: Any) -> None:
        with self._changed:
            self._in_flight -= 1
            emission._attempts += 1
            if isinstance(result, NoReply):
                self._failed_links += 1
                pause = _wire.jitter(self._random, self._failed_links, *self._backoff)
                self._paused_until = max(self._paused_until, time.monotonic() + pause)
                self._retry(emission, Fault(str(result)))
                return
            self._failed_links = 0
            answer, status = result
            if isinstance(answer, Fault):
                if status in (429, 503):
                    self._paused_until = max(self._paused_until, time.monotonic() + answer.retry_after)
                self._retry(emission, answer)
                return
            if self._outbox and isinstance(answer, Rejected):
                self._outbox.reject(emission.event, answer)
            else:
                self._remove(emission)
            emission._outcome = answer
            self._changed.notify_all()
        if self._on_outcome:
            try:
                self._on_outcome(emission.event, answer)
            except Exception:
                _LOG.exception("on_outcome failed; the event %s is %s", emission.key, answer)

    def _retry(self, emission: Emission, fault: Fault) -> None:
        emission._outcome = Pending(fault.reason, emission._attempts)
        pause = fault.retry_after + _wire.jitter(self._random, emission._attempts, *self._backoff)
        self._schedule(emission, pause)
        self._changed.notify_all()


__all__ = ["Accepted", "Client", "Emission", "Full"]

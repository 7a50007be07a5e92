"""A gate with scripted faults, for the conformance kit. Standard library only.

Each request consumes the next behaviour of the script; when the script is over, every request succeeds. Admissions
are kept by key, as a gate does: the first request with a key is fresh, later ones are duplicates.
"""

from __future__ import annotations

import email.utils
import json
import socket
import struct
import threading
import time

BODY_BYTES_MAX = 4 * 1024 * 1024
HANG_SECONDS_MAX = 20


class Request:
    """A request as it arrived."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.at = time.monotonic()
        self.behaviour = "ok"

    def identity(self):
        """Path and key: what the gate deduplicates on."""
        if self.path.startswith("/v1/events"):
            return (self.path, self.headers.get("idempotency-key", ""))
        content = json.loads(self.body)
        if self.path == "/v1/ingress":
            return (self.path, content["event_id"])
        return (self.path, content["envelope"]["idempotency_key"])


class Gate:
    """Listens on loopback; `stop` and `start` keep the port."""

    def __init__(self, script=(), claims=()):
        self.script = list(script)
        self.lock = threading.Lock()
        self.requests = []
        self.admitted = {}
        self.claimable = list(claims)
        self.settled = {}
        self.leases = 0
        self.over = threading.Event()
        self.listener = None
        self.address = ("127.0.0.1", 0)
        self.start()

    @property
    def url(self):
        return f"http://{self.address[0]}:{self.address[1]}"

    def start(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(self.address)
        listener.listen(64)
        self.address = listener.getsockname()
        self.listener = listener
        self.over = threading.Event()
        threading.Thread(target=self._accept, args=(listener, self.over), daemon=True).start()

    def stop(self):
        self.over.set()
        # Wakes the thread in accept, which a close alone does not.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    def _accept(self, listener, over):
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection, over), daemon=True).start()

    def _serve(self, connection, over):
        with connection, connection.makefile("rb") as stream:
            # A stopped gate answers no request of an old connection.
            connection.settimeout(HANG_SECONDS_MAX)
            try:
                while not over.is_set():
                    request = read_request(stream)
                    if request is None or over.is_set():
                        return
                    with self.lock:
                        request.behaviour = self.script.pop(0) if self.script else "ok"
                        self.requests.append(request)
                    if not self._perform(connection, request, over):
                        return
            except OSError:
                return

    def _perform(self, connection, request, over):
        """Answers a request; returns whether the connection stays open."""
        name, _, argument = request.behaviour.partition(":")
        if name.startswith("commit_"):
            answer = self._commit(request)
            name = name[len("commit_"):]
        else:
            answer = None
        if name in ("ok", "slow"):
            if name == "slow":
                over.wait(float(argument))
            connection.sendall(reply(*self._commit(request)))
            return True
        if name == "hang":
            wait_for_close(connection, over)
            return False
        if name == "cut":
            reset(connection)
            return False
        if name == "cut_body":
            whole = reply(*answer)
            connection.sendall(whole[: len(whole) - 20])
            reset(connection)
            return False
        if name == "garbage":
            connection.sendall(b"\x00\x01SSH-2.0-not-http\r\n\r\n")
            return False
        if name == "drip":
            drip(connection, over)
            return False
        connection.sendall(reply(*canned(name, argument)))
        return True

    def _commit(self, request):
        """Performs the request as a gate does; returns status, headers and body."""
        with self.lock:
            parts = request.path.strip("/").split("/")
            if parts[-1] == "claim":
                return self._claim(json.loads(request.body), inbox=parts[1] == "inbox")
            if (parts[:2] == ["v1", "events"] and len(parts) == 4) or parts[:2] == ["v1", "inbox"]:
                return self._settle(parts[-1], json.loads(request.body), inbox=parts[1] == "inbox")
            identity = request.identity()
            fresh = identity not in self.admitted
            number = len(self.admitted) + 1 if fresh else self.admitted[identity]
            self.admitted[identity] = number
            return accepted(request.path, identity[1], number, fresh)

    def _claim(self, wanted, inbox):
        events = []
        while self.claimable and len(events) < wanted["max"]:
            event = dict(self.claimable.pop(0))
            self.leases += 1
            event["lease"] = f"{self.leases:032x}"
            until = time.time() + wanted.get("lease_seconds", 60)
            event["lease_expires_at"] = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(until))
            events.append(event)
        return 200, {}, json.dumps({"events": events})

    def _settle(self, name, change, inbox):
        before = self.settled.get(name)
        status = change["status"]
        answer = {"event_id" if inbox else "receipt_id": name, "status": status, "finished_before": before == status}
        if status == "extended":
            answer["lease_expires_at"] = "2199-01-01T00:00:00.000Z"
        if before is not None and before != status:
            return 409, {}, error("lease_lost", False)
        if status in ("done", "failed"):
            self.settled[name] = status
        elif status == "released":
            self.settled[f"{name} released"] = status
        return 200, {}, json.dumps(answer)


def read_request(stream):
    line = stream.readline(65536).decode("latin-1").split()
    if len(line) < 3:
        return None
    headers = {}
    while True:
        header = stream.readline(65536).decode("latin-1").strip()
        if not header:
            break
        name, _, value = header.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if length > BODY_BYTES_MAX:
        return None
    return Request(line[0], line[1], headers, stream.read(length))


def accepted(path, key, number, fresh):
    if path == "/v1/ingress":
        return 200, {}, json.dumps({"event_id": key, "ack_ts": "2026-01-01T00:00:00Z", "status": "stored"})
    if path == "/plugin/events":
        disposition = "processed" if fresh else "duplicate"
        ack = {"status": "accepted", "disposition": disposition, "event_id": "x", "idempotency_key": key}
        return 200, {}, json.dumps({"ack": ack})
    headers = {} if fresh else {"Idempotent-Replayed": "true"}
    receipt = {"receipt_id": f"rcp-00000001-{number}", "stream": "default", "key": "ab" * 32}
    return 201, headers, json.dumps(receipt)


def error(code, retryable, seconds=0):
    problem = {"code": code, "message": "scripted", "retryable": retryable, "retry_after_seconds": seconds}
    return json.dumps({"error": problem})


def canned(name, argument):
    """Replies that do not depend on the request."""
    date = email.utils.formatdate(time.time() + 1 + float(argument or 0), usegmt=True) if name == "throttle_date" else ""
    table = {
        "500": lambda: (500, {}, error("internal_error", True)),
        "html_500": lambda: (500, {}, "<html>oops</html>"),
        "html_400": lambda: (400, {}, "<html>proxy</html>"),
        "html_200": lambda: (200, {}, "<html>welcome to the hotel</html>"),
        "empty_200": lambda: (200, {}, ""),
        "other_201": lambda: (201, {}, '{"ok":true}'),
        "deep_201": lambda: (201, {}, "[" * 500_000),
        "throttle": lambda: (429, {"Retry-After": argument}, error("rate_limited", True, int(argument))),
        "throttle_date": lambda: (429, {"Retry-After": date}, error("rate_limited", True)),
        "unavailable": lambda: (503, {}, error("overloaded", True, int(argument))),
        "in_use": lambda: (409, {"Retry-After": argument}, error("idempotency_key_in_use", True)),
        "redirect": lambda: (307, {"Location": "/v1/events/elsewhere"}, ""),
        "huge": lambda: (201, {}, json.dumps({"receipt_id": "r", "key": "k", "pad": "x" * (2 << 20)})),
        "unauthorized": lambda: (401, {}, error("unauthorized", False)),
        "reused": lambda: (422, {}, error("idempotency_key_reused", False)),
        "invalid": lambda: (400, {}, error("invalid_envelope", False)),
        "lease_lost": lambda: (409, {}, error("lease_lost", False)),
        "forbidden": lambda: (403, {}, error("forbidden", False)),
    }
    return table[name]()


def reply(status, headers, body):
    content = body.encode()
    lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def wait_for_close(connection, over):
    """Reads until the peer closes, for a bounded time."""
    connection.settimeout(0.05)
    end = time.monotonic() + HANG_SECONDS_MAX
    while not over.is_set() and time.monotonic() < end:
        try:
            if not connection.recv(65536):
                return
        except socket.timeout:
            continue


def drip(connection, over):
    """Sends a reply byte by byte, without an end."""
    connection.sendall(b"HTTP/1.1 201 Scripted\r\nContent-Length: 1000000\r\n\r\n{")
    end = time.monotonic() + HANG_SECONDS_MAX
    while time.monotonic() < end and not over.wait(0.02):
        connection.sendall(b" ")


def reset(connection):
    """Closes with a reset, as a crash does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()

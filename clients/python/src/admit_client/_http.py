"""One HTTP connection with a deadline for a whole request. Follows no redirect and repeats nothing."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from typing import Dict, Optional, Tuple
from urllib.parse import urlsplit

REPLY_BYTES_MAX = 1024 * 1024


class NoReply(Exception):
    """No complete reply; the request may have been performed."""


class Connection:
    """Used by one thread at a time; reconnects when necessary."""

    def __init__(self, url: str, timeout: float):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the http or https address of a gate")
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._timeout = timeout
        self._connection: Optional[http.client.HTTPConnection] = None

    def post(self, path: str, headers: Dict[str, str], body: bytes) -> Tuple[int, Dict[str, str], bytes]:
        """Returns status, headers with names in lower case, and body."""
        watch = Watch(self._timeout)
        try:
            return self._post(watch, path, headers, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            reason = "timeout" if watch.fired or isinstance(error, socket.timeout) else "connection"
            raise NoReply(reason) from error
        finally:
            watch.end()

    def _post(self, watch, path, headers, body):
        is_reused = self._connection is not None
        if self._connection is None:
            self._connection = self._connect(watch)
        watch.guard(self._connection)
        try:
            self._connection.request("POST", self._prefix + path, body, headers)
            response = self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            self.close()
            if not is_reused or watch.fired:
                raise
            # The gate closed an idle connection. The request has a key, so that sending it again is safe.
            return self._post(watch, path, headers, body)
        content = response.read(REPLY_BYTES_MAX + 1)
        if len(content) > REPLY_BYTES_MAX:
            raise ValueError("the reply is too long")
        if response.length:
            raise ValueError("the reply was cut")
        if response.will_close:
            self.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        return response.status, names, content

    def _connect(self, watch):
        if self._https:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Watch:
    """Ends the connection when the time of an attempt is over: socket timeouts restart with every byte."""

    def __init__(self, seconds: float):
        self.fired = False
        self._lock = threading.Lock()
        self._connection: Optional[http.client.HTTPConnection] = None
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def guard(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._connection = connection
            if self.fired:
                raise socket.timeout("the attempt took too long")

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._connection = None

    def _fire(self) -> None:
        with self._lock:
            self.fired = True
            sock = self._connection.sock if self._connection else None
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

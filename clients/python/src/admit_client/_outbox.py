"""Durable outbox: one file with a checksum per record, synced before an event is confirmed."""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import Dict, Optional, Tuple

from ._wire import Frozen, Rejected

COMPACT_ABOVE = 1024 * 1024

# Windows would translate line ends without O_BINARY.
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


class Damaged(Exception):
    """The outbox has a damaged record; nothing was removed."""


class Locked(Exception):
    """Another client uses the outbox."""


class Outbox:
    """Not thread-safe: the client holds its lock."""

    def __init__(self, path: str):
        self.path = path
        self._lock = _lock(path + ".lock")
        try:
            self.live: Dict[str, Tuple[Frozen, Optional[Rejected]]] = {}
            self._ended_bytes = 0
            self._sizes: Dict[str, int] = {}
            self._broken: Optional[str] = None
            self._size = self._read()
            self._file = os.open(path, APPEND, 0o600)
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            _sync_folder(path)
            if self._ended_bytes:
                self._compact()
        except BaseException:
            os.close(self._lock)
            raise

    def put(self, event: Frozen) -> None:
        """Returns after the event is on disk."""
        self._sizes[event.id] = self._append(_lines(event, None), sync=True)
        self.live[event.id] = (event, None)

    def reject(self, event: Frozen, rejected: Rejected) -> None:
        self.live[event.id] = (event, rejected)
        try:
            self._sizes[event.id] += self._append(_rejected_line(event.id, rejected), sync=True)
        except OSError:
            # After a restart the event is sent and refused again.
            pass

    def end(self, id: str) -> None:
        """The event is accepted or discarded. Not synced: a lost record costs a copy."""
        del self.live[id]
        self._ended_bytes += self._sizes.pop(id)
        try:
            self._ended_bytes += self._append(_line({"op": "end", "id": id}), sync=False)
        except OSError:
            # After a restart the event is sent again, and is a duplicate.
            return
        if self._size > COMPACT_ABOVE and self._ended_bytes * 2 > self._size:
            self._compact()

    def close(self) -> None:
        self._broken = "it is closed"
        os.close(self._file)
        os.close(self._lock)

    def _append(self, line: bytes, sync: bool) -> int:
        if self._broken:
            raise OSError(f"the outbox {self.path} failed before: {self._broken}")
        try:
            _write(self._file, line)
            if sync:
                os.fsync(self._file)
        except OSError as error:
            try:
                os.ftruncate(self._file, self._size)
                os.fsync(self._file)
            except OSError:
                self._broken = str(error)
            raise
        self._size += len(line)
        return len(line)

    def _read(self) -> int:
        """Reads the records; returns where the last good one ends."""
        try:
            with open(self.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return 0
        at = 0
        while at < len(content):
            end = content.find(b"\n", at) + 1
            record = _parse(content[at:end]) if end else None
            if record is None and end in (0, len(content)):
                # Torn by a crash, never confirmed.
                return at
            if record is None or not self._apply(record, end - at):
                raise Damaged(
                    f"{self.path} is damaged at byte {at}; nothing was removed. "
                    "Move it away, or remove the record by hand; a retry does not help"
                )
            at = end
        return at

    def _apply(self, record: dict, size: int) -> bool:
        try:
            id = record["id"]
            if record["op"] == "put":
                occurred = record.get("occurred")
                event = Frozen(id, record["at"] / 1000, record["door"], record["path"], record["type"], record["key"],
                               base64.b64decode(record["body"], validate=True), occurred and occurred / 1000)
                self.live[id] = (event, None)
                self._sizes[id] = size
            elif record["op"] == "end" and id not in self.live:
                self._ended_bytes += size
            elif record["op"] == "rejected":
                event, _ = self.live[id]
                self.live[id] = (event, Rejected(record["code"], record["message"], record["status"]))
                self._sizes[id] += size
            elif record["op"] == "end":
                self._ended_bytes += size + self._sizes.pop(id)
                del self.live[id]
            else:
                return False
        except (KeyError, TypeError, ValueError):
            return False
        return True

    def _compact(self) -> None:
        """Writes what is left to a new file and renames it; a failure leaves the old one in use."""
        new = self.path + ".new"
        try:
            file = os.open(new, APPEND | os.O_TRUNC, 0o600)
        except OSError:
            return
        try:
            size, sizes = 0, {}
            for id, (event, rejected) in self.live.items():
                lines = _lines(event, rejected)
                _write(file, lines)
                sizes[id] = len(lines)
                size += len(lines)
            os.fsync(file)
            os.replace(new, self.path)
        except OSError:
            os.close(file)
            return
        os.close(self._file)
        self._file, self._size, self._sizes, self._ended_bytes = file, size, sizes, 0
        _sync_folder(self.path)


def _lines(event: Frozen, rejected: Optional[Rejected]) -> bytes:
    record = {"op": "put", "id": event.id, "at": round(event.at * 1000), "door": event.door, "path": event.path}
    record.update(type=event.type, key=event.key, body=base64.b64encode(event.body).decode())
    if event.occurred is not None:
        record["occurred"] = round(event.occurred * 1000)
    lines = _line(record)
    return lines + _rejected_line(event.id, rejected) if rejected else lines


def _rejected_line(id: str, rejected: Rejected) -> bytes:
    record = {"op": "rejected", "id": id, "code": rejected.code}
    return _line({**record, "message": rejected.message, "status": rejected.status})


def _line(record: dict) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> Optional[dict]:
    try:
        if int(line[:8], 16) != zlib.crc32(line[9:-1]):
            return None
        record = json.loads(line[9:])
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left):]


def _sync_folder(path: str) -> None:
    if os.name == "nt":
        return
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock(path: str) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise Locked(f"another client uses the outbox of {path}; give each process its own") from None
    return file

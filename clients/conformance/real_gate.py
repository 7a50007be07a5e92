"""Integration test of one client with the real gate.

    ADMIT_TEST_BINARY=/path/to/admit python3 real_gate.py -- DRIVER [ARGUMENT]...

Starts gates on loopback in temporary folders and ends them. Prints `ok` at the end.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from driver import Driver

WAIT_SECONDS = 60
OPTIONS = {"timeout": 10, "backoff_base": 0.02, "backoff_cap": 0.1, "concurrency": 2}
KEYS = {"produce": "produce-key-0123456789abcdef0123", "consume": "consume-key-0123456789abcdef0123"}

PLUGIN_EVENT = {
    "event_name": "pixel_control.connectivity.plugin_heartbeat",
    "schema_version": "2026-02-19.1",
    "event_id": "pc-evt-connectivity-plugin_heartbeat-1771524842001",
    "event_category": "connectivity",
    "source_callback": "plugin_heartbeat",
    "source_sequence": 1771524842001,
    "source_time": 1771524842,
    "idempotency_key": "pc-idem-3a2e7e05b7c9d54ac2b1a53d7b4c8d1f0e9a6b57",
    "payload": {"type": "plugin_heartbeat", "queue_depth": 0, "timestamp": 1771524842},
    "metadata": {"plugin_version": "0.1.0", "schema_version": "2026-02-19.1"},
}


class Gate:
    """A gate process on a folder; `restart` keeps folder and port."""

    def __init__(self, folder, config=""):
        self.folder = Path(folder)
        self.arguments = []
        if config:
            (self.folder / "admit.toml").write_text(config)
            self.arguments = ["--config", str(self.folder / "admit.toml")]
        self.listen = "127.0.0.1:0"
        self.start()

    def start(self):
        log = self.folder / "gate.log"
        command = [os.environ["ADMIT_TEST_BINARY"], "serve", "--data", str(self.folder / "data"), "--listen", self.listen]
        # Variables that begin with ADMIT_ are config keys of the gate.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("ADMIT_")}
        command += self.arguments
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=variables)
        try:
            self.url = until(lambda: self.address(log), "the gate prints its address")
            self.listen = self.url[len("http://"):]
            until(lambda: fetch(self.url + "/readyz"), "the gate is ready")
        except BaseException:
            self.kill()
            raise

    def address(self, log):
        assert self.process.poll() is None, log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        return found and found.group()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def keys(self, key=None):
        """Idempotency keys of the default stream."""
        page = fetch(self.url + "/v1/events/default?after=0&limit=100", key)
        return sorted(event["idempotency_key"] for event in page["events"])


def fetch(url, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
            return json.loads(response.read() or b"true")
    except (OSError, ValueError):
        return None


def until(condition, what):
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {WAIT_SECONDS} s")


class Program:
    """A driver with its client."""

    def __init__(self, command, url, **options):
        self.driver = Driver(command)
        assert self.driver.call("open", url=url, options={**OPTIONS, **options}) == {}

    def emit(self, data, key=None, door="events", stream="default"):
        return self.driver.call("emit", door=door, stream=stream, key=key, data=data)["id"]

    def outcome(self, data, **event):
        return self.driver.call("wait", id=self.emit(data, **event), seconds=WAIT_SECONDS)

    def flush(self):
        return self.driver.call("flush", seconds=WAIT_SECONDS)["pending"]

    def consume(self, **options):
        self.driver.call("consume", **{"stream": "default", "inbox": False, "consumer": "w", "max": 2, **options})

    def next(self):
        answer = self.driver.call("next")
        assert "error" not in answer, answer
        return answer

    def settle(self, how):
        answer = self.driver.call("settle", how=how)
        assert answer == {}, answer


def expect(found, **members):
    for name, value in members.items():
        assert found.get(name) == value, f"{name} is not {value}: {found}"


def doors(program, gate):
    expect(program.outcome({"n": 1}, key="k1"), outcome="accepted", duplicate=False)
    expect(program.outcome({"n": 1}, key="k1"), outcome="accepted", duplicate=True)
    expect(program.outcome({"n": 2}, key="k1"), outcome="rejected", code="idempotency_key_reused")
    envelope = {"event_id": "evt_1", "type": "t", "session_id": "s", "device_id": "d", "payload": {"n": 1}}
    expect(program.outcome(envelope, door="skyra"), outcome="accepted", duplicate=None)
    expect(program.outcome({"event_id": "evt_2"}, door="skyra"), outcome="rejected", code="invalid_envelope")
    expect(program.outcome(PLUGIN_EVENT, door="pixel-control"), outcome="accepted", duplicate=False)
    expect(program.outcome(PLUGIN_EVENT, door="pixel-control"), outcome="accepted", duplicate=True)
    broken = {"idempotency_key": "pc-idem-1"}
    outcome = program.outcome(broken, door="pixel-control")
    expect(outcome, outcome="rejected")
    assert gate.keys() == ["k1"], gate.keys()


def claims(program):
    expect(program.outcome({"n": 3}, key="k3"), outcome="accepted")
    program.consume()
    first = program.next()
    assert first["data"] == {"n": 1} and first["attempt"] == 1, first
    program.settle("extend")
    program.settle("ack")
    program.settle("ack")
    assert program.next()["data"] == {"n": 3}
    program.settle("release")
    again = program.next()
    assert again["data"] == {"n": 3} and again["attempt"] == 2, again
    program.settle("fail")
    assert program.next()["id"] is None
    program.consume(inbox=True)
    entry = program.next()
    assert entry["id"] == "evt_1" and entry["data"]["payload"] == {"n": 1}, entry
    program.settle("ack")
    assert program.next()["id"] is None


def crash_of_the_gate(program, gate):
    gate.kill()
    for n in range(5):
        program.emit({"n": n}, key=f"crash-{n}")
    gate.start()
    assert program.flush() == 0
    assert [key for key in gate.keys() if key.startswith("crash")] == [f"crash-{n}" for n in range(5)]


def crash_of_the_producer(command, gate, outbox):
    gate.kill()
    program = Program(command, gate.url, outbox=str(outbox))
    for n in range(5):
        program.emit({"n": n}, key=f"kept-{n}")
    program.driver.kill()
    gate.start()
    program = Program(command, gate.url, outbox=str(outbox))
    assert program.flush() == 0
    program.driver.end()
    assert [key for key in gate.keys() if key.startswith("kept")] == [f"kept-{n}" for n in range(5)]


def principals(command, gate):
    producer = Program(command, gate.url, key=KEYS["produce"])
    expect(producer.outcome({"n": 1}, key="k1"), outcome="accepted")
    producer.consume()
    assert producer.driver.call("next").get("error") == "refused"
    producer.driver.end()
    consumer = Program(command, gate.url, key=KEYS["consume"])
    consumer.consume()
    assert consumer.next()["data"] == {"n": 1}
    consumer.settle("ack")
    consumer.driver.end()
    stranger = Program(command, gate.url, key="another-key-0123456789abcdef0123")
    emitted = stranger.emit({"n": 2}, key="k2")
    read = lambda: stranger.driver.call("wait", id=emitted, seconds=0.05)
    outcome = until(lambda: (lambda one: one if one["reason"] == "unauthorized" else None)(read()), "a refused key")
    expect(outcome, outcome="pending", expired=False)
    stranger.driver.kill()


def retention(command, gate):
    """A gate that removes keys after an hour refuses what a client with the same horizon does not send."""
    old = {"n": 1, "at": "2020-01-01T00:00:00Z"}
    program = Program(command, gate.url)
    expect(program.outcome(old, key="old"), outcome="rejected", code="outside_horizon")
    program.driver.end()
    careful = Program(command, gate.url, horizon=1800)
    emitted = careful.driver.call("emit", door="events", stream="default", key="new", data=old, occurred_at=1577836800)
    assert careful.flush() == 0
    expect(careful.driver.call("wait", id=emitted["id"], seconds=0), outcome="pending", expired=True)
    careful.driver.end()
    assert gate.keys() == []


def main(arguments):
    command = arguments[arguments.index("--") + 1:]
    hello = Driver(command)
    abilities = hello.call("hello")["abilities"]
    hello.end()
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate(folder)
        try:
            program = Program(command, gate.url)
            doors(program, gate)
            claims(program)
            crash_of_the_gate(program, gate)
            program.driver.end()
            if "outbox" in abilities:
                crash_of_the_producer(command, gate, Path(folder) / "a.outbox")
        finally:
            gate.kill()
    with_principals = "".join(
        f'[[principals]]\nname = "{role}r"\nkeys = ["{key}"]\nrole = "{role}"\n' for role, key in KEYS.items()
    )
    with_retention = '[ledger]\nretain = "1h"\nclock_gap_max = "30m"\n[[doors.events]]\nname = "default"\ntime_field = "at"\n'
    for config, check in ((with_principals, principals), (with_retention, retention)):
        with tempfile.TemporaryDirectory() as folder:
            gate = Gate(folder, config)
            try:
                check(command, gate)
            finally:
                gate.kill()
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1:])

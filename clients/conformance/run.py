"""Runs the cases of the conformance kit against one client.

    python3 run.py [--only TEXT] -- DRIVER [ARGUMENT]...

Prints a line per case; ends with 1 if one failed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from driver import Driver
from scripted_gate import Gate

HERE = Path(__file__).parent
DEFAULTS = {"timeout": 10, "backoff_base": 0.02, "backoff_cap": 0.1, "concurrency": 2}
WAIT_SECONDS = 15
PARALLEL = 4


class Run:
    """One case: a gate, a driver and a folder of its own."""

    def __init__(self, case, command, folder):
        self.case, self.command, self.folder = case, command, Path(folder)
        inbox = any(step.get("consume", {}).get("inbox") for step in case["steps"])
        self.gate = Gate(case.get("script", []), claimable(case.get("claims", 0), inbox))
        self.options = {**DEFAULTS, **case.get("options", {})}
        if "outbox" in self.options:
            self.outbox = self.folder / self.options["outbox"]
            self.options["outbox"] = str(self.outbox)
            if "fixture" in case:
                self.outbox.write_bytes(b"".join(record(one) for one in case["fixture"]))
        self.driver = None
        self.last = None
        self.damaged = None

    def perform(self):
        self.driver = Driver(self.command)
        try:
            self.open({})
            for step in self.case["steps"]:
                self.step(step)
            self.driver.end()
            self.check()
        finally:
            self.driver.kill()
            self.gate.stop()

    def open(self, step):
        self.expect(step, self.driver.call("open", url=self.gate.url, options=self.options))

    def expect(self, step, answer):
        assert answer.get("error") == step.get("error"), f"{step}: {answer}"
        return answer

    def step(self, step):
        name = next(iter(step))
        handler = getattr(self, f"do_{name}")
        handler(step, step[name])

    def do_emit(self, step, event):
        answer = self.expect(step, self.driver.call("emit", **{"door": "events", "stream": "default", "key": None, **event}))
        self.last = answer.get("id", self.last)

    def do_wait(self, step, wanted):
        answer = self.driver.call("wait", id=self.last, seconds=step.get("seconds", WAIT_SECONDS))
        for member, value in wanted.items():
            assert answer.get(member) == value, f"{member} is {answer.get(member)}, not {value}: {answer}"

    def do_flush(self, step, pending):
        answer = self.driver.call("flush", seconds=step.get("seconds", WAIT_SECONDS))
        assert answer == {"pending": pending}, f"{step}: {answer}"

    def do_close(self, step, pending):
        answer = self.driver.call("close", seconds=step.get("seconds", WAIT_SECONDS))
        assert answer == {"pending": pending}, f"{step}: {answer}"

    def do_open(self, step, _):
        if self.driver.process.poll() is not None:
            self.driver = Driver(self.command)
        self.open(step)

    def do_second(self, step, error):
        second = Driver(self.command)
        try:
            answer = second.call("open", url=self.gate.url, options=self.options)
            assert answer.get("error") == error, answer
        finally:
            second.kill()

    def do_kill(self, *_):
        self.driver.kill()

    def do_gate(self, _, change):
        getattr(self.gate, change)()

    def do_await_requests(self, _, count):
        end = time.monotonic() + WAIT_SECONDS
        while len(self.gate.requests) < count:
            assert time.monotonic() < end, f"{count} requests did not arrive"
            time.sleep(0.01)

    def do_discard(self, step, _):
        self.expect(step, self.driver.call("discard", id=self.last))

    def do_rejected(self, _, keys):
        answer = self.driver.call("rejected")
        assert [event["key"] for event in answer["events"]] == keys, answer

    def do_discard_rejected(self, step, _):
        for event in self.driver.call("rejected")["events"]:
            self.expect(step, self.driver.call("discard", id=event["id"]))

    def do_append(self, _, text):
        with self.outbox.open("ab") as file:
            file.write(text.encode())

    def do_damage(self, _, text):
        """Changes the last letter of a text: what is left is JSON, but has another checksum."""
        content = bytearray(self.outbox.read_bytes())
        content[content.index(text.encode()) + len(text) - 1] ^= 1
        self.outbox.write_bytes(content)
        self.damaged = bytes(content)

    def do_consume(self, step, options):
        self.expect(step, self.driver.call("consume", **{"stream": "default", "inbox": False, "consumer": "w", **options}))

    def do_next(self, step, wanted):
        answer = self.expect(step, self.driver.call("next"))
        assert answer.get("id") == wanted, f"{step}: {answer}"

    def do_settle(self, step, how):
        self.expect(step, self.driver.call("settle", how=how))

    def do_stop(self, step, _):
        self.expect(step, self.driver.call("stop"))

    def check(self):
        case, gate = self.case, self.gate
        sent = [request for request in gate.requests if not request.path.endswith("/claim")]
        if "admissions" in case:
            assert len(gate.admitted) == case["admissions"], f"admissions: {gate.admitted}"
            self.check_frozen(sent)
        if "requests" in case:
            assert len(sent) == case["requests"], f"{len(sent)} requests: {[r.behaviour for r in sent]}"
        assert len(gate.requests) >= case.get("requests_min", 0), f"only {len(gate.requests)} requests"
        if not case.get("script_left"):
            assert not gate.script, f"not reached: {gate.script}"
        if "keys" in case:
            assert sorted({request.identity()[1] for request in sent}) == case["keys"], sent
        if "paths" in case:
            assert [request.path for request in sent] == case["paths"], [r.path for r in sent]
        for request in sent:
            assert request.path == case.get("paths_all", request.path)
            for name, value in case.get("headers", {}).items():
                assert request.headers.get(name) == value, request.headers
        if "body" in case:
            assert json.loads(sent[0].body) == case["body"], sent[0].body
        if "gap_min" in case:
            gap = sent[1].at - sent[0].at
            assert gap >= case["gap_min"], f"the second request came after {gap:.3f} s"
        if "settled" in case:
            assert gate.settled == case["settled"], gate.settled
        if case.get("unchanged"):
            assert self.outbox.read_bytes() == self.damaged, "the outbox was changed"

    def check_frozen(self, sent):
        """Every attempt of an event has the same bytes; the kit's events have different content."""
        bodies = {}
        for request in sent:
            first = bodies.setdefault(request.identity(), request.body)
            assert request.body == first, f"{request.identity()}: {first} and then {request.body}"
            assert request.headers.get("content-type") == "application/json", request.headers


def claimable(count, inbox):
    if inbox:
        return [{"event_id": f"evt_{n}", "payload": {}, "attempt": 1} for n in range(1, count + 1)]
    return [{"receipt_id": f"rcp-00000001-{n}", "seq": n, "data": {"n": n}, "attempt": 1} for n in range(1, count + 1)]


def record(content):
    text = json.dumps(content).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def outcome_of(case, command):
    """The error of a case, or an empty text."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            Run(case, command, folder).perform()
        except Exception as error:  # every kind of failure belongs to its case
            return f"{type(error).__name__} {error}" or "failed"
    return ""


def main(arguments):
    only = arguments[1] if arguments[:1] == ["--only"] else ""
    command = arguments[arguments.index("--") + 1:]
    hello = Driver(command)
    able = {"", *hello.call("hello")["abilities"]}
    hello.end()
    whole = json.loads((HERE / "cases.json").read_text("utf-8"))
    cases = [case for case in whole if only in case["name"] and case.get("needs", "") in able]
    failed = 0
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        for case, error in zip(cases, pool.map(lambda case: outcome_of(case, command), cases)):
            failed += bool(error)
            print(f"FAILED  {case['name']}: {error}" if error else f"ok      {case['name']}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed, {len(whole) - len(cases)} not run")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

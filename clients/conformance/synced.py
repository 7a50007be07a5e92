"""Checks with strace that a client syncs an event before `emit` returns.

    python3 synced.py -- DRIVER [ARGUMENT]...

Prints `ok`, or `no outbox` for a client without one.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from driver import Driver
from scripted_gate import Gate

KEY = "synced-key"


def check(command):
    with tempfile.TemporaryDirectory() as folder:
        trace, outbox = Path(folder) / "trace", Path(folder) / "a.outbox"
        calls = "trace=openat,write,pwrite64,writev,pwritev,fsync,fdatasync"
        gate = Gate()
        gate.stop()
        driver = Driver(["strace", "-f", "-e", calls, "-s", "65536", "-o", str(trace), *command])
        try:
            if "outbox" not in driver.call("hello")["abilities"]:
                return "no outbox"
            assert driver.call("open", url=gate.url, options={"outbox": str(outbox)}) == {}
            driver.call("emit", door="events", stream="default", key=KEY, data=1)
            driver.end()
        finally:
            driver.kill()
        steps = steps_of(trace.read_text("utf-8", "replace"))
        assert steps[:3] == ["record", "sync", "reply"], steps
    return "ok"


def steps_of(trace):
    """What happened since the record of the event was written."""
    steps = []
    for line in trace.splitlines():
        is_write = re.search(r"\bp?writev?(64)?\(", line)
        if is_write and KEY in line:
            steps.append("record" if "put" in line else "reply")
        # A call that another thread interrupted ends on a line of its own.
        elif steps and re.search(r"(fsync|fdatasync)(\(\d+\)| resumed>\)?).*= 0", line):
            steps.append("sync")
    return steps


if __name__ == "__main__":
    print(check(sys.argv[sys.argv.index("--") + 1:]))

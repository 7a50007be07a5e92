"""A client's driver program: JSON lines on its standard input and output."""

from __future__ import annotations

import json
import queue
import subprocess
import threading

ANSWER_SECONDS_MAX = 30


class Driver:
    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process):
        for line in process.stdout:
            self.lines.put(line)
        self.lines.put(b"")

    def call(self, do, **arguments):
        """Sends a command and returns the driver's reply."""
        line = json.dumps({"do": do, **arguments}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        answer = self.lines.get(timeout=ANSWER_SECONDS_MAX)
        if not answer:
            raise AssertionError(f"the driver ended at {line.strip()}")
        return json.loads(answer)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=ANSWER_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError("the driver does not end at the end of its input") from None

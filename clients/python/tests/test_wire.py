"""Unit tests: python3 -m unittest discover -s tests"""

import email.utils
import json
import math
import os
import random
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import admit_client as admit  # noqa: E402
from admit_client import _wire  # noqa: E402
from admit_client._outbox import Outbox  # noqa: E402

REPLIES = json.loads((ROOT.parent / "conformance" / "replies.json").read_text("utf-8"))


def event(door, key):
    return _wire.Frozen("0" * 32, 0.0, door, "/", "application/json", key, b"{}")


class Replies(unittest.TestCase):
    def test_every_reply_of_the_table_is_classified_as_specified(self):
        for reply in REPLIES:
            with self.subTest(reply["name"]):
                text = reply["text"] if "text" in reply else json.dumps(reply["body"])
                headers = {name.lower(): value for name, value in reply["headers"].items()}
                found = _wire.classify(event(reply["door"], reply["key"]), reply["status"], headers, text.encode())
                kinds = {_wire.Accepted: "accepted", _wire.Rejected: "rejected", _wire.Fault: "pending"}
                for member, value in reply["expect"].items():
                    actual = kinds[type(found)] if member == "outcome" else getattr(found, member)
                    self.assertEqual(actual, value, member)

    def test_a_date_of_retry_after_is_a_number_of_seconds(self):
        seconds = _wire.retry_after({"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True)}, {})
        self.assertTrue(0 < seconds <= 100, seconds)

    def test_a_body_of_deep_brackets_is_no_receipt(self):
        found = _wire.classify(event("events", "k"), 200, {}, b"[" * 1000000)
        self.assertIsInstance(found, _wire.Fault)


class Jitter(unittest.TestCase):
    def test_the_pause_is_spread_from_zero_to_the_doubled_base_and_capped(self):
        seed = random.randrange(2**32)
        pauses = random.Random(seed)
        for attempt in range(1, 200):
            top = min(30.0, 0.25 * 2.0 ** min(attempt - 1, 60))
            seen = [_wire.jitter(pauses, attempt, 0.25, 30.0) for _ in range(200)]
            message = f"seed {seed}, attempt {attempt}"
            self.assertTrue(all(0 <= pause <= top for pause in seen), message)
            self.assertLess(min(seen), top * 0.2, message)
            self.assertGreater(max(seen), top * 0.8, message)


class Events(unittest.TestCase):
    def test_the_bytes_are_frozen_at_emit(self):
        data = {"n": 1}
        frozen = _wire.freeze_event(data)
        data["n"] = 2
        self.assertEqual(frozen.body, b'{"n":1}')

    def test_keys_of_two_events_differ(self):
        self.assertNotEqual(_wire.freeze_event(1).key, _wire.freeze_event(1).key)

    def test_what_json_cannot_say_is_invalid(self):
        for data in (math.nan, math.inf, {1, 2}, object(), "\ud800"):
            with self.subTest(repr(data)), self.assertRaises(ValueError):
                _wire.freeze_event(data)

    def test_bytes_need_a_content_type_and_a_length(self):
        for data, content_type in ((b"x", None), (b"", "text/plain")):
            with self.assertRaises(ValueError):
                _wire.freeze_event(data, content_type=content_type)


class OutboxFile(unittest.TestCase):
    def test_ended_events_are_removed_from_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.outbox")
            outbox = Outbox(path)
            kept = _wire.freeze_event({"n": 0})
            outbox.put(kept)
            for _ in range(40):
                large = _wire.freeze_event("x" * 100_000)
                outbox.put(large)
                outbox.end(large.id)
            self.assertLess(os.path.getsize(path), 1_500_000)
            outbox.close()
            again = Outbox(path)
            self.assertEqual([one.body for one, _ in again.live.values()], [b'{"n":0}'])
            again.close()

    def test_a_record_that_cannot_be_written_is_an_error_and_leaves_no_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.outbox")
            client = admit.Client("http://127.0.0.1:9", outbox=path)
            before = os.path.getsize(path)
            writable, client._outbox._file = client._outbox._file, os.open(path, os.O_RDONLY)
            with self.assertRaises(OSError):
                client.emit(1)
            os.close(client._outbox._file)
            client._outbox._file = writable
            self.assertEqual((client.pending(), os.path.getsize(path)), ([], before))
            client.close(0)


if __name__ == "__main__":
    unittest.main()

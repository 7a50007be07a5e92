"""Driver of the conformance kit for this client: JSON lines on standard input and output."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

import admit_client as admit  # noqa: E402

KINDS = {
    admit.Full: "full",
    ValueError: "invalid",
    admit.Locked: "locked",
    admit.Damaged: "damaged",
    admit.LeaseLost: "lease_lost",
    admit.Refused: "refused",
    KeyError: "unknown",
}


class Driver:
    def __init__(self):
        self.client = self.events = self.current = None
        self.emissions = {}

    def hello(self, _):
        return {"client": "python", "abilities": ["outbox", "background"]}

    def open(self, call):
        self.client = admit.Client(call["url"], **call["options"])
        return {}

    def emit(self, call):
        data, at = call["data"], call.get("occurred_at")
        if call["door"] == "skyra":
            emission = self.client.emit_skyra(data)
        elif call["door"] == "pixel-control":
            emission = self.client.emit_pixel_control(data)
        else:
            emission = self.client.emit(data, call["stream"], call["key"], occurred_at=at)
        self.emissions[emission.id] = emission
        return {"id": emission.id, "key": emission.key}

    def wait(self, call):
        outcome = self.emissions[call["id"]].wait(call["seconds"])
        return {"outcome": type(outcome).__name__.lower(), **vars(outcome)}

    def flush(self, call):
        return {"pending": self.client.flush(call["seconds"])}

    def close(self, call):
        return {"pending": self.client.close(call["seconds"])}

    def rejected(self, _):
        return {"events": [{"id": one.id, "key": one.key} for one in self.client.rejected()]}

    def discard(self, call):
        self.client.discard(call["id"])
        return {}

    def consume(self, call):
        options = {"consumer": call["consumer"], "max": call["max"], "until_empty": True}
        if call["inbox"]:
            self.events = self.client.consume_inbox(**options)
        else:
            self.events = self.client.consume(call["stream"], **options)
        return {}

    def next(self, _):
        self.current = next(self.events, None)
        if self.current is None:
            return {"id": None}
        return {"id": self.current.id, "data": self.current.data, "attempt": self.current.attempt}

    def settle(self, call):
        getattr(self.current, call["how"])()
        return {}

    def stop(self, _):
        self.events.close()
        return {}


def main():
    driver = Driver()
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = getattr(driver, call["do"])(call)
        except tuple(KINDS) as error:
            answer = {"error": next(kind for of, kind in KINDS.items() if isinstance(error, of)), "detail": str(error)}
        print(json.dumps(answer), flush=True)


main()

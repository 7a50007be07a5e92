"""Python's `websockets` at the skyra door: far ahead, a bad one in between, pings and a goodbye."""

import asyncio
import json
import sys

from door import skip_without
from envelope import envelope, is_ack

skip_without("websockets")

import websockets  # noqa: E402

EVENTS = 500


async def main(url):
    async with websockets.connect(url) as socket:
        await socket.send(envelope(0))
        assert is_ack(json.loads(await socket.recv()), 0)
        for n in range(EVENTS):
            await socket.send(envelope(n + 1))
            if n == 250:
                await socket.send("no envelope")
        answers = [json.loads(await socket.recv()) for _ in range(EVENTS + 1)]
        nacks = [answer for answer in answers if answer["status"] == "rejected"]
        assert len(nacks) == 1 and nacks[0]["event_id"] is None, nacks
        assert nacks[0]["error"]["code"] == "invalid_envelope", nacks
        acked = sorted(answer["event_id"] for answer in answers if answer not in nacks)
        assert acked == [f"evt_python_{n:06}" for n in range(1, EVENTS + 1)]
        await (await socket.ping())
    assert socket.close_code == 1000, socket.close_code
    print("ok")


asyncio.run(main(sys.argv[1]))

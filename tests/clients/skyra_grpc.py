"""`grpcio` at the skyra door, with stubs that grpcio-tools makes of our own proto file."""

import sys
import tempfile

from door import skip_without
from envelope import envelope

skip_without("grpc")
skip_without("grpc_tools")

import grpc  # noqa: E402
from grpc_tools import protoc  # noqa: E402

EVENTS = 500


def stubs(proto):
    folder = tempfile.mkdtemp()
    words = ["protoc", f"-I{proto}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(words + ["admit/v1/ingress.proto"]) == 0
    sys.path.insert(0, folder)
    from admit.v1 import ingress_pb2, ingress_pb2_grpc

    return ingress_pb2, ingress_pb2_grpc


def main(address, proto):
    messages, services = stubs(proto)

    def message(n):
        return messages.Envelope(json=envelope(n).encode())

    with grpc.insecure_channel(address) as channel:
        ingress = services.IngressStub(channel)
        answer = ingress.Submit(message(0), timeout=20)
        assert answer.ack.event_id == "evt_python_000000", answer
        assert answer.ack.status == "stored" and answer.ack.ack_ts.endswith("Z"), answer
        bad = ingress.Submit(messages.Envelope(json=b"[]"), timeout=20)
        assert bad.WhichOneof("answer") == "nack", bad
        assert not bad.nack.HasField("event_id") and bad.nack.error.code == "invalid_envelope"
        assert bad.nack.error.message.startswith("invalid envelope"), bad

        sent = (message(n) for n in range(1, EVENTS + 1))
        acked = sorted(answer.ack.event_id for answer in ingress.Stream(sent, timeout=30))
        assert acked == [f"evt_python_{n:06}" for n in range(1, EVENTS + 1)]
    print("ok")


main(sys.argv[1], sys.argv[2])

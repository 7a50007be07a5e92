"""Client without the proto file: it uses server reflection, as grpcurl does."""

import sys

from door import skip_without
from envelope import envelope

skip_without("grpc")
skip_without("grpc_reflection")

import grpc  # noqa: E402
from google.protobuf.descriptor_pool import DescriptorPool  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # noqa: E402
    ProtoReflectionDescriptorDatabase,
)


def main(address):
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "admit.v1.Ingress" in database.get_services(), database.get_services()
        assert "grpc.health.v1.Health" in database.get_services(), database.get_services()
        service = DescriptorPool(database).FindServiceByName("admit.v1.Ingress")
        method = service.FindMethodByName("Submit")
        request = GetMessageClass(method.input_type)(json=envelope(0).encode())
        call = channel.unary_unary(
            f"/{service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        answer = call(request, timeout=20)
        assert answer.ack.event_id == "evt_python_000000" and answer.ack.status == "stored", answer
    print("ok")


main(sys.argv[1])

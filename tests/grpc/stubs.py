"""Clients of the gRPC services for tests: every method by its name, and errors with their details."""

import importlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from sandur.server.grpc.routes import METHODS
from sandur.v1.common_pb2 import Name, NamespaceName

SECONDS_MAX: Final = 60
_MODULES: Final = {
    "Catalogs": "catalogs",
    "Namespaces": "catalogs",
    "Directory": "catalogs",
    "Tables": "tables",
    "Views": "tables",
    "Scans": "scans",
    "DeltaTables": "delta",
    "Events": "events",
}
_DETAILS: Final = (
    error_details_pb2.ErrorInfo,
    error_details_pb2.RequestInfo,
    error_details_pb2.RetryInfo,
    error_details_pb2.BadRequest,
)

Metadata = tuple[tuple[str, str], ...]


def method_of(channel: Any, method: str) -> Callable[..., Any]:
    """A method such as `Tables.Get`, through the generated stub."""
    service, _, name = method.partition(".")
    module = importlib.import_module(f"sandur.v1.{_MODULES[service]}_pb2_grpc")
    stub = getattr(module, f"{service}Stub")(channel)
    found: Callable[..., Any] = getattr(stub, name)
    return found


class Problem(NamedTuple):
    """An error: its code, its text, and its details by the names of their types."""

    code: str
    text: str
    details: dict[str, Any]

    @property
    def reason(self) -> str:
        return str(self.details["ErrorInfo"].reason)


def problem_of(error: grpc.RpcError) -> Problem:
    status = rpc_status.from_call(error)
    return Problem(error.code().name, error.details(), details_of(status) if status else {})


def details_of(status: status_pb2.Status) -> dict[str, Any]:
    """The details of an error, by the names of their types."""
    details: dict[str, Any] = {}
    for packed in status.details:
        for kind in _DETAILS:
            if packed.Is(kind.DESCRIPTOR):
                found = kind()
                packed.Unpack(found)
                details[kind.DESCRIPTOR.name] = found
    return details


class Client:
    """Calls methods of a server and waits for their answers."""

    def __init__(self, address: str, token: str = "", credentials: grpc.ChannelCredentials | None = None) -> None:
        options = (("grpc.max_receive_message_length", -1),)
        if credentials:
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(address, options)
        self.metadata: Metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def call(self, method: str, message: Message, *metadata: tuple[str, str], timeout: float = SECONDS_MAX) -> Any:
        """The answer; a list if the method has a stream of them. Raises grpc.RpcError."""
        sent = (*self.metadata, *metadata)
        answer = method_of(self.channel, method)(message, metadata=sent, timeout=timeout, wait_for_ready=True)
        return answer if isinstance(answer, Message) else list(answer)

    def stream(self, method: str, message: Message) -> Any:
        """The answers of a method as they arrive; `cancel` ends them."""
        return method_of(self.channel, method)(message, metadata=self.metadata, wait_for_ready=True)

    def problem(self, method: str, message: Message, *metadata: tuple[str, str]) -> Problem:
        """The error of a call that must fail."""
        try:
            answer = self.call(method, message, *metadata)
        except grpc.RpcError as error:
            return problem_of(error)
        raise AssertionError(f"{method} succeeded: {answer}")

    def close(self) -> None:
        self.channel.close()


def every_method() -> Sequence[str]:
    """All methods that the server declares, such as `Tables.Get`."""
    return [path.removeprefix("/sandur.v1.").replace("/", ".") for path in METHODS]


def table_name(name: str, catalog: str = "", namespace: Sequence[str] = ("ns",)) -> Name:
    return Name(catalog=catalog, namespace=namespace, name=name)


def namespace_name(*levels: str, catalog: str = "") -> NamespaceName:
    return NamespaceName(catalog=catalog, levels=levels)


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def grpc_address(printed: Sequence[str]) -> str:
    """The address of the gRPC services in the output of a server."""
    return next(line.split()[1] for line in printed if line.strip().startswith("gRPC "))

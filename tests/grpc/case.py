"""One case: a request to a REST API, and the call of a gRPC method that means the same."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from tests.grpc.stubs import namespace_name, table_name
from tests.server.requests import set_properties

UNITY: Final = "/api/2.1/unity-catalog"
OK: Final = "OK"


class Side(NamedTuple):
    """One of the two catalogs, and the answers of earlier cases there, by their names."""

    catalog: str
    answers: dict[str, Any]

    @property
    def namespaces(self) -> str:
        return f"/v1/{self.catalog}/namespaces"

    @property
    def tables(self) -> str:
        return f"{self.namespaces}/ns/tables"

    @property
    def views(self) -> str:
        return f"{self.namespaces}/ns/views"

    @property
    def delta(self) -> str:
        return f"{UNITY}/delta/v1/catalogs/{self.catalog}/schemas/ns"


class Rest(NamedTuple):
    """A request; `query` are its parameters."""

    method: str
    path: str
    body: Any = None
    query: dict[str, str] | None = None


class Case(NamedTuple):
    """What is sent to each side; `code` is that of gRPC, and `status` that of REST if it is not the usual one."""

    name: str
    rest: Callable[[Side], Rest]
    method: str
    message: Callable[[Side], Message]
    code: str = OK
    status: int = 0


def named(side: Side, name: str) -> Any:
    return table_name(name, side.catalog)


def namespace(side: Side, *levels: str) -> Any:
    return namespace_name(*(levels or ("ns",)), catalog=side.catalog)


def metadata(side: Side, case: str = "create a table") -> Any:
    return side.answers[case]["metadata"]


def change(name: str, **properties: str) -> Any:
    return {"table-changes": [{"identifier": {"namespace": ["ns"], "name": name}, **set_properties(**properties)}]}

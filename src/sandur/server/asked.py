"""What a call knows in every protocol: the path, the query, the headers and the body, read when they are needed."""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from sandur.catalog.sources import Request
from sandur.errors import BadRequest
from sandur.operations.lake import Lake
from sandur.operations.lakes import Lakes
from sandur.server.identity import Identity, source_of
from sandur.server.messages import HttpRequest
from sandur.server.paths import decoded_query, decoded_segment
from sandur.server.request_hash import checked_key, request_hash
from sandur.settings import Settings

SHOWN_CHARS_MAX: Final = 40
_TRUTH: Final = {"true": True, "false": False}


class Reachable(Protocol):
    """What every call can reach."""

    @property
    def lakes(self) -> Lakes: ...

    @property
    def settings(self) -> Settings: ...


R = TypeVar("R", bound=Reachable)


class Asked(Generic[R]):
    """A request on its way to an operation. `values` are the encoded parameters of the path, in their order."""

    def __init__(
        self, service: R, operation: str, values: Mapping[str, bytes], http: HttpRequest, identity: Identity
    ) -> None:
        self.service = service
        self.operation = operation
        self.http = http
        self.identity = identity
        self._values = values
        self._query: Mapping[str, str] | None = None

    @property
    def lake(self) -> Lake:
        return self.service.lakes.lake(self.identity.tenant, self.identity.workspace)

    @property
    def settings(self) -> Settings:
        return self.service.settings

    def value(self, parameter: str) -> str:
        """A parameter of the path."""
        return decoded_segment(self._values[parameter])

    @property
    def names(self) -> Sequence[str]:
        """What the path says the request is about."""
        return [decoded_segment(value) for value in self._values.values()]

    @property
    def query(self) -> Mapping[str, str]:
        if self._query is None:
            self._query = decoded_query(self.http.query)
        return self._query

    def is_set(self, parameter: str) -> bool:
        """A boolean of the query, false when absent. Python clients write `True`."""
        text = self.query.get(parameter) or "false"
        if text.lower() not in _TRUTH:
            raise BadRequest(f"Invalid {parameter}: expected true or false, found {text[:SHOWN_CHARS_MAX]!r}")
        return _TRUTH[text.lower()]

    def request(self, *asked: str) -> Request:
        """What a mutation carries: the key, the source, and the hash of everything that was asked."""
        key = self.http.header(b"idempotency-key")
        depth_max = self.settings.request_depth_max
        return Request(
            hash=request_hash(self.operation, [*self.names, *asked], self.http.body, depth_max=depth_max),
            key=None if key is None else checked_key(key),
            source=source_of(self.http, self.identity),
        )

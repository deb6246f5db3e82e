"""One call of an operation: what the path, the query, the headers and the body say, read when it is needed."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.sources import Request
from sandur.errors import BadRequest
from sandur.operations.catalogs_of import Sandur
from sandur.operations.workspace import Workspace
from sandur.server.iceberg_rest.bodies import natural
from sandur.server.iceberg_rest.names import decoded_levels, decoded_query, decoded_segment
from sandur.server.identity import Identity, source_of
from sandur.server.messages import HttpRequest
from sandur.server.request_hash import checked_key, request_hash
from sandur.settings import Settings

_TRUTH: Final = {"true": True, "false": False}


class Service(NamedTuple):
    """What every call can reach."""

    sandur: Sandur
    settings: Settings
    endpoints: Sequence[str]


class PageAsked(NamedTuple):
    """Which page of a list is wanted. No token means everything, an empty one the first page."""

    token: str | None
    size: int | None


class Call:
    """A request on its way to an operation. `values` are the encoded parameters of the path, in their order."""

    def __init__(
        self, service: Service, operation: str, values: Mapping[str, bytes], http: HttpRequest, identity: Identity
    ) -> None:
        self.service = service
        self.operation = operation
        self.http = http
        self.identity = identity
        self._values = values
        self._query: Mapping[str, str] | None = None

    @property
    def workspace(self) -> Workspace:
        return self.service.sandur.workspace(self.identity.tenant, self.identity.workspace)

    @property
    def catalog(self) -> str:
        """The prefix selects the catalog; without one it is the default."""
        prefix = self._values.get("prefix")
        return self.service.settings.default_catalog if prefix is None else decoded_segment(prefix)

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.catalog, decoded_levels(self._values["namespace"]))

    def identifier(self, parameter: str) -> Identifier:
        catalog, levels = self.namespace
        return Identifier(catalog, levels, decoded_segment(self._values[parameter]))

    def text(self, parameter: str) -> str:
        """A parameter of the path that is no name of anything in the catalog."""
        return decoded_segment(self._values[parameter])

    @property
    def query(self) -> Mapping[str, str]:
        if self._query is None:
            self._query = decoded_query(self.http.query)
        return self._query

    @property
    def page(self) -> PageAsked:
        size = self.query.get("pageSize")
        return PageAsked(self.query.get("pageToken"), natural(size, "pageSize") if size else None)

    def is_set(self, parameter: str) -> bool:
        """A boolean of the query, false when absent. PyIceberg writes `True`."""
        text = self.query.get(parameter, "") or "false"
        if text.lower() not in _TRUTH:
            raise BadRequest(f"Invalid {parameter}: expected true or false, found {text[:40]!r}")
        return _TRUTH[text.lower()]

    def request(self, *asked: str) -> Request:
        """What a mutation carries: the key, the source, and the hash of everything that was asked."""
        key = self.http.header(b"idempotency-key")
        names = [self.catalog, *(decoded_segment(value) for name, value in self._values.items() if name != "prefix")]
        return Request(
            hash=request_hash(
                self.operation,
                [*names, *asked],
                self.http.body,
                depth_max=self.service.settings.request_depth_max,
            ),
            key=None if key is None else checked_key(key),
            source=source_of(self.http, self.identity),
        )

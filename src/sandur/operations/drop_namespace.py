"""A namespace as something to be dropped: what it holds, and what stands where it was."""

from dataclasses import dataclass
from typing import Final

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import Place, place_of
from sandur.catalog.records import LastChange, NamespaceRecord
from sandur.catalog.sources import Request
from sandur.errors import NotFound
from sandur.operations.concurrency import gather_all
from sandur.operations.drop_home import drop_home, first_child_namespace, first_found
from sandur.operations.index_truth import keys_below
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import missing, nothing
from sandur.operations.tables.names import is_namespace_visible, settle_name
from sandur.storage.cell import Cell

OPERATION: Final = "drop-namespace"


async def drop_namespace(lake: Lake, namespace: Namespace, request: Request) -> None:
    """Drop an empty namespace; NotFound when there is none, NotEmpty when it holds anything."""
    await drop_home(lake, _NamespaceHome(lake, namespace), request)


@dataclass(frozen=True)
class _NamespaceHome:
    lake: Lake
    namespace: Namespace
    operation: str = OPERATION

    @property
    def text(self) -> str:
        return f"Namespace {self.namespace}"

    @property
    def cell(self) -> Cell[NamespaceRecord]:
        return self.lake.namespace(self.namespace)

    @property
    def place(self) -> Place:
        return place_of(self.namespace)

    def missing(self) -> NotFound:
        return missing(self.namespace)

    async def is_there(self, record: NamespaceRecord) -> bool:
        return await is_namespace_visible(self.lake, self.namespace, record)

    async def is_emptied(self) -> bool:
        return False

    async def first_child(self, home_id: str) -> str | None:
        below = first_child_namespace(self.lake, self.namespace.catalog, self.namespace, home_id)
        namespace, name = await gather_all([below, self._first_name(home_id)])
        return namespace or name

    async def _first_name(self, home_id: str) -> str | None:
        layout = self.lake.layout

        async def looked(key: str) -> str | None:
            identifier = layout.parse_name(key)
            spot = await settle_name(self.lake, identifier, dropping=home_id)
            return f"the {spot.live.name.value.kind} {identifier}" if spot.live else None

        return await first_found(keys_below(self.lake, layout.names_folder(self.namespace)), looked)

    def gone(self, record: NamespaceRecord, change: LastChange, now_ms: int) -> NamespaceRecord:
        del record
        return nothing(now_ms, change)

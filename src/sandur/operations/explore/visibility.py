"""Which published tables a caller may see. Published rows have no grants: the catalog decides as it is now."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.security import Authority
from sandur.errors import NotFound, SandurError
from sandur.operations.access import may_see, name_chain, namespace_chain, viewer_of
from sandur.operations.lake import Lake
from sandur.operations.tables.names import resolve_name
from sandur.storage.cell import gather_in_batches

Row = Mapping[str, Any]

CHECKED_MAX: Final = 1_024
"""How many rows are looked at for one answer, at most."""
_CHECKS_AT_ONCE: Final = 64


class Sight:
    """What one caller may see of published tables, by the grants that its request has read."""

    def __init__(self, lake: Lake, authority: Authority | None) -> None:
        self._lake = lake
        self._authority = authority
        self._whole: dict[Namespace, bool] = {}
        viewer = viewer_of(lake, authority, (authority.metastore,)) if authority else None
        self.is_unlimited = lake.access is None or authority is None or (viewer is None or viewer.sees_all("table"))
        """Whether the caller sees every table of the workspace."""

    async def visible(self, rows: Sequence[Row], wanted: int, *, uuid: str = "uuid") -> list[Row]:
        """The first `wanted` rows that the caller may see; `uuid` is the column with the id of the table."""
        if self.is_unlimited:
            return list(rows[:wanted])
        found: list[Row] = []
        for start in range(0, min(len(rows), CHECKED_MAX), _CHECKS_AT_ONCE):
            some = rows[start : start + _CHECKS_AT_ONCE]
            seen = await gather_in_batches(some, self._check(uuid), at_once=_CHECKS_AT_ONCE)
            found += [row for row, is_visible in zip(some, seen, strict=True) if is_visible]
            if len(found) >= wanted:
                break
        return found[:wanted]

    def _check(self, uuid: str) -> Callable[[Row], Any]:
        return lambda row: self.sees(row["catalog"], row["namespace"], row["name"], row[uuid])

    async def sees(self, catalog: str | None, namespace: str | None, name: str | None, uuid: str) -> bool:
        """Whether the caller may see the table that was published under this name."""
        if self.is_unlimited or self._authority is None:
            return True
        if catalog is None or namespace is None or name is None:
            return False
        identifier = Identifier(catalog, tuple(namespace.split(".")), name)
        try:
            if await self._sees_all_in(identifier.namespace):
                return True
            found = await resolve_name(self._lake, identifier)
            if found is None or uuid not in {found.uuid, found.pointer.value.table_uuid}:
                return False
            chain = await name_chain(self._lake, self._authority, found, missing=_missing(identifier))
        except SandurError:
            return False
        return may_see(self._lake, self._authority, chain)

    async def _sees_all_in(self, namespace: Namespace) -> bool:
        if self._authority is None:
            return True
        if namespace not in self._whole:
            missing = NotFound(f"namespace {namespace} does not exist", subject="namespace")
            chain = await namespace_chain(self._lake, self._authority, namespace, missing=missing)
            viewer = viewer_of(self._lake, self._authority, chain)
            self._whole[namespace] = viewer is None or viewer.sees_all("table")
        return self._whole[namespace]


def _missing(identifier: Identifier) -> NotFound:
    return NotFound(f"{identifier} does not exist", subject="table")

"""Which published tables a caller may see. Published rows have no grants: the catalog decides as it is now."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sandur.catalog.identifiers import Identifier
from sandur.catalog.security.manifest import Authority
from sandur.errors import NotFound, SandurError
from sandur.operations.access import may_see, viewer_of
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import name_chain
from sandur.operations.tables.names import resolve_name
from sandur.storage.cell import gather_in_batches

Row = Mapping[str, Any]

CHECKED_MAX: Final = 1_024
"""How many rows are looked at for one answer, at most."""
_CHECKS_AT_ONCE: Final = 64
_SETTLED_AT_ONCE: Final = 32
"""About how many rows a search decides beforehand."""
_LOOKS_MAX: Final = 8
_CALLERS_MAX: Final = 64
_VERDICTS_MAX: Final = 10_000

_Key = tuple[str, str, str, str]


class _Verdicts:
    """What one caller may see, by one version of the grants and of the publication. `settle` goes on at `next`."""

    def __init__(self) -> None:
        self.rows: dict[_Key, bool] = {}
        self.next = 0

    def keep(self, key: _Key, *, is_visible: bool) -> None:
        if len(self.rows) >= _VERDICTS_MAX:
            self.rows.clear()
        self.rows[key] = is_visible


def _callers(lake: Lake) -> LruCache[tuple[str, int, frozenset[str]], _Verdicts]:
    """The verdicts of callers, by the version of the grants, the sequence of the publication, and their subjects."""
    del lake
    return LruCache(_CALLERS_MAX)


class Sight:
    """What one caller may see of published tables, by the grants that its request has read.

    `sequence` is that of the publication. With it, verdicts are kept for later requests with the same grants. Each
    table is looked at, also if the caller sees all in its namespace: it may have left that before the right was given.
    """

    def __init__(self, lake: Lake, authority: Authority | None, *, sequence: int = 0) -> None:
        self._lake = lake
        self._authority = authority
        self._verdicts = _Verdicts()
        viewer = viewer_of(lake, authority, (authority.metastore,)) if authority else None
        self.is_unlimited = lake.access is None or authority is None or (viewer is None or viewer.sees_all("table"))
        """Whether the caller sees every table of the workspace."""
        if sequence and lake.access and authority and not self.is_unlimited:
            key = (authority.version, sequence, authority.subjects(lake.access.caller))
            self._verdicts = lake.named_feature(_callers).setdefault(key, self._verdicts)

    async def settle(self, rows: Sequence[Row], others: Callable[[int, int], Sequence[Row]]) -> None:
        """Decide about rows that the request found, together with others that it did not find.

        A request costs the same whether or not it found a table that the caller may not see, so its time tells nothing
        about such a table: every request decides about as many rows, until all are decided. `others` returns rows of
        the publication, from a number on.
        """
        unknown = [row for row in rows if self._known(row) is None][:_SETTLED_AT_ONCE]
        verdicts = self._verdicts
        for _ in range(_LOOKS_MAX):
            if len(unknown) >= _SETTLED_AT_ONCE:
                break
            more = others(verdicts.next, _SETTLED_AT_ONCE)
            verdicts.next += len(more)
            unknown += [row for row in more if self._known(row) is None and row not in unknown]
        await gather_in_batches(unknown[:_SETTLED_AT_ONCE], self._check("uuid"), at_once=_SETTLED_AT_ONCE)

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

    def _known(self, row: Row) -> bool | None:
        """Whether the caller may see the table; None if that is not decided yet."""
        return self._verdicts.rows.get((row["catalog"], row["namespace"], row["name"], row["uuid"]))

    async def sees(self, catalog: str | None, namespace: str | None, name: str | None, uuid: str) -> bool:
        """Whether the caller may see the table that was published under this name."""
        if self.is_unlimited or self._authority is None:
            return True
        if catalog is None or namespace is None or name is None:
            return False
        key = (catalog, namespace, name, uuid)
        if key in self._verdicts.rows:
            return self._verdicts.rows[key]
        try:
            identifier = Identifier(catalog, tuple(namespace.split(".")), name)
            is_visible = await self._is_visible(identifier, uuid, self._authority)
        except NotFound:
            is_visible = False
        except SandurError:
            return False
        self._verdicts.keep(key, is_visible=is_visible)
        return is_visible

    async def _is_visible(self, identifier: Identifier, uuid: str, authority: Authority) -> bool:
        found = await resolve_name(self._lake, identifier)
        if found is None or uuid not in {found.uuid, found.published_uuid}:
            return False
        chain = await name_chain(self._lake, authority, found, missing=_missing(identifier))
        return may_see(self._lake, authority, chain)


def _missing(identifier: Identifier) -> NotFound:
    return NotFound(f"{identifier} does not exist", subject="table")

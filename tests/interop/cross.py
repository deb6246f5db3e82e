"""The engines that write a table which every engine must read, and the engines that read it.

An engine adds its `WRITERS` and `READERS` in the module `cross` of one of the packages in `CONTRIBUTORS`. The test runs
every pair of a writer and a reader on every store that both can reach.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

from tests.interop.matrix import STORES
from tests.interop.server_address import Served

CONTRIBUTORS: Final = ("tests.interop.spark", "tests.interop.engines")

Row = tuple[int, str | None, float | None]

# The columns are id (long), name (string), amount (double), in this order.
ROWS: Final[tuple[Row, ...]] = ((1, "one", 1.5), (2, None, -2.25), (3, "þrír ❄", None))
# Writers that can delete rows also insert and delete this one, so that readers must apply deletes.
DELETED_ROW: Final[Row] = (4, "gone", 4.0)
ADDED_ROW: Final[Row] = (5, "more", 5.0)


@dataclass(frozen=True)
class Writer:
    """Creates a table in an existing namespace with exactly `ROWS` in it; `append` adds `ADDED_ROW` to a table."""

    engine: str
    write: Callable[[Served, str, str], None]
    append: Callable[[Served, str, str], object]
    stores: tuple[str, ...] = STORES
    is_quick: bool = False


@dataclass(frozen=True)
class Reader:
    """Reads all rows of a table, in any order; `refuses` has its errors for writers whose files it cannot read."""

    engine: str
    read: Callable[[Served, str, str], Iterable[Row]]
    stores: tuple[str, ...] = STORES
    is_quick: bool = False
    refuses: Mapping[str, str] = field(default_factory=dict)


def contributed_writers() -> list[Writer]:
    return [writer for module in _modules() for writer in module.WRITERS]


def contributed_readers() -> list[Reader]:
    return [reader for module in _modules() for reader in module.READERS]


def _modules() -> list[ModuleType]:
    """The modules `cross` of the packages that have one."""
    names = [f"{package}.cross" for package in CONTRIBUTORS if importlib.util.find_spec(package)]
    return [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]

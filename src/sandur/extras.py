"""Optional packages, loaded on first use: a base install has no numpy and no pyarrow, and most requests need neither.

Scan planning, the published system tables and checkpoints of Delta logs use them (`pip install 'sandur[planning]'`).
Without them, a request that needs one gets Unsupported, and the server does not advertise scan planning.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final

from sandur.errors import Unsupported

_EXTRAS: Final = {"numpy": "planning", "pyarrow": "planning"}


class LazyModule:
    """A module that is imported when the first of its attributes is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - whatever the module has
        try:
            value = getattr(importlib.import_module(self._name), attribute)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise
            raise Unsupported(f"this server has no {package}: pip install 'sandur[{_EXTRAS[package]}]'") from error
        setattr(self, attribute, value)  # The next use costs no more than that of a module.
        return value


def has_planning() -> bool:
    """Whether the packages of scan planning are installed."""
    return all(importlib.util.find_spec(package) is not None for package in _EXTRAS)


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    pa, pc, pq = LazyModule("pyarrow"), LazyModule("pyarrow.compute"), LazyModule("pyarrow.parquet")

__all__ = ["LazyModule", "has_planning", "pa", "pc", "pq"]

"""The tested versions of Spark and Iceberg, their stores, and the marks of their tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from tests.interop.matrix import FOLDER, S3, operation

_SECONDS_MAX: Final = 900
# The first run builds Spark 3.5 from its source distribution.
_INSTALL_SECONDS_MAX: Final = 2_700


@dataclass(frozen=True)
class Flavour:
    """One Spark: its column of the matrix, its versions, and the store of its tables."""

    engine: str
    spark: str
    iceberg: str
    store: str

    def __str__(self) -> str:
        return f"spark-{self.spark}-iceberg-{self.iceberg}-{self.store}"


LATEST: Final = Flavour("Spark", "4.1", "1.11.0", FOLDER)
ON_S3: Final = Flavour("Spark", "4.1", "1.11.0", S3)
NEXT: Final = Flavour("Spark", "4.1", "1.12.0", FOLDER)
OLDEST: Final = Flavour("Spark 3.5", "3.5", "1.5.2", FOLDER)

EVERY: Final = (LATEST, ON_S3, NEXT, OLDEST)
NEW: Final = (LATEST, ON_S3, NEXT)
ON_A_FOLDER: Final = (LATEST, NEXT)


def shows(
    *operations: str, by: Sequence[Flavour] = (LATEST,), always: bool = False, cannot: str = ""
) -> pytest.MarkDecorator:
    """The mark of a test for these flavours; it parametrizes the fixtures `spark` and `sql`.

    With `always` the first flavour also runs with the default tests. With `cannot` a pass means that they refuse as
    expected, and `cannot` is the reason.
    """
    return pytest.mark.parametrize(
        "spark",
        [
            pytest.param(
                flavour, id=str(flavour), marks=[*_marks(flavour, is_daily=always and not place), *operation_marks]
            )
            for place, flavour in enumerate(by)
            for operation_marks in [
                [operation(flavour.engine, name, store=flavour.store, cannot=cannot) for name in operations]
            ]
        ],
        indirect=True,
        scope="session",
    )


def _marks(flavour: Flavour, *, is_daily: bool) -> list[pytest.MarkDecorator]:
    limit = pytest.mark.timeout(_INSTALL_SECONDS_MAX if flavour == OLDEST else _SECONDS_MAX)
    return [limit] if is_daily else [limit, pytest.mark.interop]

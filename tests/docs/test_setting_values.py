"""Tables of the documentation give each setting its real default."""

import re
from pathlib import Path
from typing import Final

import pytest

from sandur.setting_sources import setting_keys
from sandur.settings import Settings
from tests.docs.pages import PAGES, name_of, prose

_ROW: Final = re.compile(r"^\| `(?P<key>[a-z_]+)` \| (?P<value>[^|]+) \|", re.MULTILINE)
_MIB: Final = " MiB"


def rows(page: Path) -> list[tuple[str, str]]:
    return [
        (row["key"], row["value"].strip("` ")) for row in _ROW.finditer(prose(page)) if row["key"] in setting_keys()
    ]


def in_bytes(value: str) -> str:
    return str(int(value.removesuffix(_MIB)) << 20) if value.endswith(_MIB) else value


_OTHER_TABLES: Final = ("settings.md", "system-tables.md")
"""Pages whose tables have other columns than settings and defaults."""


@pytest.mark.parametrize("page", [page for page in PAGES if rows(page) and page.name not in _OTHER_TABLES], ids=name_of)
def test_every_default_is_the_real_one(page: Path) -> None:
    wrong = [(key, value) for key, value in rows(page) if in_bytes(value) != str(getattr(Settings(), key))]

    assert wrong == []

"""The decisions of `sandur doctor`: the machine, clock skew, and settings that are unwise."""

import tomllib
from pathlib import Path

import pytest

from sandur.cli.doctor import available_bytes, examine_machine
from sandur.operations.examination import clock_skew_ms, examine_settings
from sandur.settings import Settings


@pytest.mark.parametrize(
    ("store_ms", "skew_ms"), [(10_050, 0), (10_999, 0), (9_100, 0), (40_000, 29_900), (5_000, -5_000)]
)
def test_the_skew_is_what_the_call_itself_does_not_explain(store_ms: int, skew_ms: int) -> None:
    assert clock_skew_ms(store_ms, before_ms=10_000, after_ms=10_100) == skew_ms


def test_unwise_settings_are_warnings_with_a_remedy() -> None:
    unwise = Settings(store="memory:", fsync="never", janitors=False, receipt_retention="P1D")

    found = {line.subject: line for line in examine_settings(unwise, is_loopback=False)}

    assert set(found) == {f"setting {one}" for one in ("fsync", "authentication", "janitors", "receipt_retention")}
    assert all(line.state == "warn" and line.remedy for line in found.values())
    assert list(examine_settings(Settings(), is_loopback=True)) == []


def test_every_extra_that_is_installed_is_named() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    versions = next(iter(examine_machine(Settings(store="memory:"))))

    assert set(versions.text.partition("extras: ")[2].split(", ")) == set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MemFree:  1 kB\nMemAvailable:     5 kB\nCached: 4 kB\n", 5_120),
        ("MemFree: 9 kB\n", 0),
        ("", 0),
    ],
)
def test_memory_that_caches_hold_counts_as_available(text: str, found: int) -> None:
    assert available_bytes(text) == found

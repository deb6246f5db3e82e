"""The decisions of `sandur doctor`: the machine, clock skew, and settings that are unwise."""

import resource
import shutil
import tomllib
from pathlib import Path

import pytest

from sandur.cli.doctor import disk, examine_machine, memory, open_files
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
    ("limit", "state", "text"),
    [(4_095, "warn", "at most 4,095"), (4_096, "ok", "at most 4,096"), (resource.RLIM_INFINITY, "ok", "unlimited")],
)
def test_few_open_files_are_a_warning(limit: int, state: str, text: str) -> None:
    line = open_files(limit)

    assert (line.state, line.text) == (state, text)
    assert ("ulimit -n" in line.remedy) is (state == "warn")


@pytest.mark.parametrize(
    ("meminfo", "state", "text"),
    [
        ("MemFree:  1 kB\nMemAvailable:     524287 kB\nCached: 4 kB\n", "warn", "511 MiB available"),
        ("MemFree:  1 kB\nMemAvailable:     524288 kB\nCached: 4 kB\n", "ok", "512 MiB available"),
        ("MemFree: 9 kB\n", "ok", "not known on this system"),
        ("", "ok", "not known on this system"),
    ],
)
def test_little_memory_is_a_warning_and_what_caches_hold_counts_as_available(
    meminfo: str, state: str, text: str
) -> None:
    remedy = "a worker needs about 512 MiB" if state == "warn" else ""

    assert memory(meminfo) == ("memory", state, text, remedy)


@pytest.mark.parametrize(("free_gib", "state"), [(4, "warn"), (5, "ok"), (0, "warn")])
def test_a_disk_that_is_almost_full_is_a_warning(free_gib: int, state: str) -> None:
    line = disk(total_bytes=100 << 30, free_bytes=free_gib << 30)

    assert (line.state, line.text) == (state, f"{free_gib} of 100 GiB free")
    assert ("make room" in line.remedy) is (state == "warn")


def test_the_machine_is_examined_with_its_own_limits_and_the_disk_of_a_folder(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    stored = list(examine_machine(Settings(store=str(tmp_path))))
    missing = list(examine_machine(Settings(store=str(tmp_path / "none"))))
    elsewhere = list(examine_machine(Settings(store="memory:")))

    assert [line.subject for line in stored] == ["versions", "open files", "memory", "disk"]
    assert stored[1] == open_files(limit)
    assert "MiB available" in stored[2].text
    assert f" of {shutil.disk_usage(tmp_path).total >> 30:,} GiB free" in stored[3].text
    assert missing[3].text == "the folder does not exist yet"
    assert [line.subject for line in elsewhere] == ["versions", "open files", "memory"]

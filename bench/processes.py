"""CPU time of a process and its descendants, and the peak memory of a process, from /proc."""

import os
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PARENT: Final = 1
_OWN: Final = slice(11, 15)  # User and system time, of the process and of its ended children.


def family_cpu_seconds(pid: int) -> float:
    """The CPU time of a process and all its descendants so far."""
    fields = {int(entry.name): _fields(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    family, size = {pid}, 0
    while len(family) > size:
        size = len(family)
        family |= {one for one, values in fields.items() if values and int(values[_PARENT]) in family}
    return sum(int(ticks) for one in family for ticks in fields.get(one, ())[_OWN]) / _TICKS_PER_SECOND


def largest_mib(pid: int) -> int:
    """The peak memory of a process since its start, or since `forget_largest`."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) // 1_024


def forget_largest(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _fields(entry: Path) -> list[str]:
    """The fields behind the program name, the state first; empty if the process is gone."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []

"""The sequential storage rounds of requests, without renames of catalogs and schemas and with each layer for them.

A request is a graph: each call needs the answers of others before it can be sent. Its rounds are the longest chain. A
server that remembers where something lies sends the call at once, beside the calls that verify it.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Calls: TypeAlias = Mapping[str, tuple[str, ...]]
"""Each call, and the calls whose answers it needs."""

Layer: TypeAlias = Literal["today", "directory", "sparse", "exchange"]
Memory: TypeAlias = Literal["all", "containers", "nothing"]
"""What a server remembers: the table, only the directories or aliases, nothing."""

# The lookups of a container, in their order. The layers without directories have one object for all of them.
LOOKUPS: Final[Mapping[Layer, tuple[str, ...]]] = {
    "today": (),
    "directory": ("catalogs", "schemas"),
    "sparse": ("aliases",),
    "exchange": ("aliases",),
}

# The first call of each request lies below the container: its key needs the lookups.
LOAD: Final[Calls] = {"name": (), "pointer": ("name",), "metadata": ("pointer",)}
LOAD_HINTED: Final[Calls] = {"name": (), "pointer": ("name",), "metadata": ("name",)}
WRITE: Final[Calls] = {"file": ("metadata",), "swap": ("file",)}
LIST: Final[Calls] = {"index": ()}
CREATE: Final[Calls] = {
    "name": (),
    "namespace": (),
    "pointer": ("name", "namespace"),
    "file": ("name", "namespace"),
    "new name": ("pointer", "file"),
    "confirm": ("new name",),
}
REQUESTS: Final[Mapping[str, Calls]] = {
    "load": LOAD,
    "load, hint correct": LOAD_HINTED,
    "commit": {**LOAD, **WRITE},
    "commit, hint correct": {**LOAD_HINTED, **WRITE},
    "list": LIST,
    "create": CREATE,
}
GUARDED: Final[Mapping[str, str]] = {
    "load": "name",
    "load, hint correct": "name",
    "list": "index",
}
"""After this call, the lookups are read again, if its answer or a lookup is new to the server."""

REMEMBERED: Final = frozenset(("name", "pointer", "metadata"))


def calls_of(request: str, layer: Layer, memory: Memory) -> Calls:
    """The calls of a request, with the lookups of a layer and the guard."""
    lookups = LOOKUPS[layer]
    calls = dict(REQUESTS[request])
    if memory == "all" and "metadata" in calls:
        # Everything is verified in one round. A commit sends its file in the same round, and swaps what it verified.
        calls = {call: tuple(one for one in needs if one not in REMEMBERED) for call, needs in calls.items()}
    sent_first = [
        call for call, needs in calls.items() if not needs and (memory != "all" or call in REMEMBERED | {"index"})
    ]
    for at, lookup in enumerate(lookups):
        calls[lookup] = lookups[at - 1 : at] if memory == "nothing" and at else ()
    if lookups and memory == "nothing":
        for call in sent_first:
            calls[call] = (lookups[-1],)
    if lookups and memory != "all" and request in GUARDED:
        calls["guard"] = (GUARDED[request],)
    return calls


def rounds(request: str, layer: Layer, memory: Memory) -> int:
    calls = calls_of(request, layer, memory)

    def depth(call: str) -> int:
        return 1 + max((depth(need) for need in calls[call]), default=0)

    return max(map(depth, calls))


def reads_of_a_warm_load(layer: Layer, *, checks_grants: bool = False) -> int:
    """The name and the pointer, the grants if they are checked, and the lookups that verify where the name lies.

    The metadata file never changes. In the exchange layer the aliases are part of the manifest of the grants.
    """
    lookups = 0 if layer == "exchange" and checks_grants else len(LOOKUPS[layer])
    return 2 + checks_grants + lookups

"""The records that carry events: names, pointers, namespaces. The receipt of an event."""

from typing import Final, Literal, NamedTuple, TypeAlias

from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, put

TRIES_MAX: Final = 2
Unsure: TypeAlias = Literal["unsure"]
Claim: TypeAlias = tuple[str, ...]
"""What an idempotency key has tried so far: ids of events, behind what it pins. Or ("done", the answer)."""

NameState = Literal["new", "active", "moving", "moved", "pending", "dropped", "free"]
PointerState = Literal["unbound", "condemned", "live", "dropped", "killed", "purging"]
OVER: Final = frozenset(("free", "moved", "dropped"))
ENDED: Final = frozenset(("dropped", "killed", "purging"))


class Event(NamedTuple):
    """One change. `previous` is the event before it, empty for the first one of a chain; `by` is the request."""

    id: str
    kind: Literal["created", "changed", "renamed", "dropped", "undropped"]
    object: str
    name: str
    previous: str
    by: str


class Name(NamedTuple):
    """`life` is the undrop that wrote the name, empty in the first life of a table; `event` is the last event."""

    state: NameState
    uuid: str
    life: str = ""
    home: str = ""
    other: str = ""
    other_version: int = 0
    rename: str = ""
    transaction: str = ""
    event: Event | None = None


class Pointer(NamedTuple):
    """`event` is the drop, from the drop until the table has a name again; `change` is the last change of content."""

    state: PointerState
    life: str = ""
    made_for: str = ""
    event: Event | None = None
    change: Event | None = None


class Namespace(NamedTuple):
    state: Literal["active", "dropping"]
    id: str
    by: str = ""


def name_cell(name: str) -> Cell[Name]:
    return Cell(f"name:{name}")


def pointer_cell(uuid: str) -> Cell[Pointer]:
    return Cell(f"pointer:{uuid}")


def space_cell(name: str) -> Cell[Namespace]:
    return Cell(f"space:{name.partition('.')[0]}")


def receipt_cell(key: str) -> Cell[Event]:
    return Cell(f"receipt:{key}")


def record_cell(transaction: str) -> Cell[str]:
    return Cell(f"transaction:{transaction}")


def claim_cell(key: str) -> Cell[Claim]:
    return Cell(f"claim:{key}")


def order_cell(uuid: str, event: str) -> Cell[str]:
    """The order to purge what a drop ended."""
    return Cell(f"order:{uuid}/{event}")


def files_cell(uuid: str) -> Cell[str]:
    return Cell(f"files:{uuid}")


def ensure(event: Event | None, rules: Rules, writer: str = "") -> Step[bool]:
    """Whether the receipt of the event is known to exist. A lost answer is not known."""
    if event is None:
        return True
    for _ in range(TRIES_MAX):
        key = event.id if "E1 key" in rules else f"{event.id}{writer}"
        answer = yield from put(receipt_cell(key), event, ABSENT)
        if answer.outcome != "unknown" or "E2 known" not in rules:
            return True
    return False


def id_of(event: Event | None) -> str:
    """The event that another one follows; "?" is no event, and no chain leads to it."""
    return event.id if event else "?"

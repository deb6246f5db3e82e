"""What is kept about names: namespaces, name entries, pointers, claims, stages and transaction records.

Each entry carries a tag, because two tuples with equal fields must still differ when they mean different things.
"""

from typing import Literal, NamedTuple, TypeAlias

from proof.steps import Cell


class Namespace(NamedTuple):
    """A namespace made again has another id."""

    state: Literal["active", "dropping"]
    by: str
    id: str


class New(NamedTuple):
    """Exists if its namespace still has this id and is active (N4)."""

    uuid: str
    namespace_id: str
    tag: str = "new"


class Active(NamedTuple):
    uuid: str
    tag: str = "active"


class Moving(NamedTuple):
    """Exists if `old` is `moved` by this rename (R7)."""

    uuid: str
    old: str
    old_version: int
    rename: str
    tag: str = "moving"


class Moved(NamedTuple):
    """Does not exist. `claim` is the key of the request's claim, empty without one (R9)."""

    uuid: str
    new: str
    rename: str
    claim: str = ""
    tag: str = "moved"


class Dropped(NamedTuple):
    uuid: str
    by: str
    tag: str = "dropped"


class Free(NamedTuple):
    """A create or rename that did not happen. Not `dropped`: the table of a withdrawn rename lives on."""

    uuid: str
    by: str
    tag: str = "free"


class Pending(NamedTuple):
    """Exists if the transaction's record is committed by this attempt (T6)."""

    uuid: str
    transaction: str
    attempt: str
    tag: str = "pending"


Entry: TypeAlias = New | Active | Moving | Moved | Dropped | Free | Pending


class Pointer(NamedTuple):
    """`content` is what the table consists of: the id of the request that made it."""

    state: Literal["unbound", "condemned", "live", "dropped", "killed"]
    content: str


class CreateClaim(NamedTuple):
    """What every attempt of a keyed create works with; `status` is open or the answer to replay."""

    status: str
    uuid: str
    namespace_id: str


class RenameClaim(NamedTuple):
    """R8: the table and every rename tried under the key; `status` is open or the answer to replay."""

    status: str
    uuid: str
    renames: tuple[str, ...]


class Record(NamedTuple):
    """A transaction; `error` is the definite answer of an aborted one (T8), empty if it may be tried again."""

    state: Literal["preparing", "committed", "aborted"]
    attempt: str
    creates: tuple[tuple[str, str], ...] = ()
    error: str = ""


def namespace_cell(space: str) -> Cell[Namespace]:
    return Cell(f"namespace:{space}")


def space_of(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def name_cell(name: str) -> Cell[Entry]:
    return Cell(f"name:{name}")


def pointer_cell(uuid: str) -> Cell[Pointer]:
    return Cell(f"pointer:{uuid}")


def create_claim(key: str) -> Cell[CreateClaim]:
    return Cell(f"claim:{key}")


def drop_claim(key: str) -> Cell[str]:
    """D2: the uuid that the request drops, or "none"."""
    return Cell(f"claim:{key}")


def rename_claim(key: str) -> Cell[RenameClaim]:
    return Cell(f"claim:{key}")


def stage_cell(uuid: str) -> Cell[str]:
    """The name that a table was staged for."""
    return Cell(f"stage:{uuid}")


def record_cell(transaction: str) -> Cell[Record]:
    return Cell(f"transaction:{transaction}")

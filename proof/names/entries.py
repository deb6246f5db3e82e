"""The records of names: namespaces, name entries, pointers, claims, stages and transactions.

Each entry carries a tag, because two tuples with equal fields must still differ when they mean different things.
"""

from typing import Literal, NamedTuple, TypeAlias

from proof.steps import Cell


class Namespace(NamedTuple):
    """A namespace that is created again has another id."""

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
    """Does not exist. `claim` is the key of the claim of the request; empty if it has no key (R9)."""

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
    """A creation or rename that did not happen. Not `dropped`: the table of a withdrawn rename still exists."""

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
    """`content` stands for the metadata of the table: the id of the request that created it."""

    state: Literal["unbound", "condemned", "live", "dropped", "killed"]
    content: str


class CreateClaim(NamedTuple):
    """The claim of a keyed creation, shared by all attempts; `status` is "open" or the answer to replay."""

    status: str
    uuid: str
    namespace_id: str


class RenameClaim(NamedTuple):
    """R8: the table and every rename attempted under the key; `status` is "open" or the answer to replay."""

    status: str
    uuid: str
    renames: tuple[str, ...]


class Record(NamedTuple):
    """A transaction; `error` is the definite answer of an aborted one (T8), empty if a retry is allowed."""

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

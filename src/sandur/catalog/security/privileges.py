"""Privileges: which exist, what each operation needs, and whether a caller has it on a chain of securables.

A chain leads from the metastore over the catalog and its namespaces to the object. Privileges are inherited downwards
and only add up; nothing denies. Ownership is not a privilege: an owner manages what it owns and everything below, but
reaches the data of objects below only by a grant.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from operator import or_
from typing import Final, Literal, NamedTuple, get_args

from sandur.errors import BadRequest

UnityPrivilege = Literal[
    "CREATE CATALOG",
    "USE CATALOG",
    "CREATE SCHEMA",
    "USE SCHEMA",
    "CREATE TABLE",
    "SELECT",
    "MODIFY",
    "CREATE FUNCTION",
    "EXECUTE",
    "CREATE VOLUME",
    "READ VOLUME",
    "CREATE MODEL",
    "CREATE EXTERNAL LOCATION",
    "READ FILES",
    "WRITE FILES",
    "CREATE EXTERNAL TABLE",
    "CREATE EXTERNAL VOLUME",
    "CREATE MANAGED STORAGE",
    "CREATE STORAGE CREDENTIAL",
]
"""The privileges that Unity Catalog's clients know; they reject an answer with any other one."""

Privilege = UnityPrivilege | Literal["BROWSE", "MANAGE", "WRITE VOLUME", "CREATE VIEW", "IMPERSONATE", "WRITE LINEAGE"]

UNITY_PRIVILEGES: Final[tuple[UnityPrivilege, ...]] = get_args(UnityPrivilege)
PRIVILEGES: Final[tuple[Privilege, ...]] = (
    *UNITY_PRIVILEGES,
    "BROWSE",
    "MANAGE",
    "WRITE VOLUME",
    "CREATE VIEW",
    "IMPERSONATE",
    "WRITE LINEAGE",
)

SecurableType = Literal[
    "metastore",
    "catalog",
    "schema",
    "table",
    "function",
    "volume",
    "registered_model",
    "external_location",
    "credential",
]
SECURABLE_TYPES: Final[tuple[SecurableType, ...]] = get_args(SecurableType)


def parse_securable_type(text: str) -> SecurableType:
    """The type that a client names, in any case; raises BadRequest for any other text."""
    for known in SECURABLE_TYPES:
        if text.lower() == known:
            return known
    raise BadRequest(f"Invalid securable type {text[:40]!r}: expected one of {', '.join(SECURABLE_TYPES)}")


Bits = int
"""A set of privileges, one bit for each."""

_BIT: Final[Mapping[str, Bits]] = {privilege: 1 << place for place, privilege in enumerate(PRIVILEGES)}
_EVERY_BIT: Final[Bits] = (1 << len(PRIVILEGES)) - 1
_CONTAINERS: Final[Mapping[SecurableType, Privilege]] = {"catalog": "USE CATALOG", "schema": "USE SCHEMA"}


@functools.cache
def bits_of(privileges: tuple[str, ...]) -> Bits:
    """The set of these privileges. A name that this version does not know has no effect."""
    return functools.reduce(or_, (_BIT.get(privilege, 0) for privilege in privileges), 0)


def names_of(bits: Bits) -> tuple[Privilege, ...]:
    """The privileges of a set, in the order of `PRIVILEGES`."""
    return tuple(privilege for privilege in PRIVILEGES if _BIT[privilege] & bits)


_MANAGE: Final = _BIT["MANAGE"]

# The privileges that make an object visible when they are held on it or above it. A privilege to create or to use
# something inside a container says nothing about the objects in it.
_SHOWING: Final[Mapping[SecurableType, Bits]] = {
    "metastore": _EVERY_BIT,
    "catalog": _EVERY_BIT,
    "schema": _EVERY_BIT,
    "table": bits_of(("SELECT", "MODIFY", "BROWSE", "MANAGE")),
    "function": bits_of(("EXECUTE", "BROWSE", "MANAGE")),
    "volume": bits_of(("READ VOLUME", "WRITE VOLUME", "BROWSE", "MANAGE")),
    "registered_model": bits_of(("EXECUTE", "BROWSE", "MANAGE")),
    "external_location": bits_of(
        (
            "READ FILES",
            "WRITE FILES",
            "CREATE EXTERNAL TABLE",
            "CREATE EXTERNAL VOLUME",
            "CREATE MANAGED STORAGE",
            "BROWSE",
            "MANAGE",
        )
    ),
    "credential": bits_of(("CREATE EXTERNAL LOCATION", "BROWSE", "MANAGE")),
}


class Link(NamedTuple):
    """One securable of a chain. `owner` is the id of its owner, empty if it has none."""

    id: str
    type: SecurableType
    name: str
    owner: str = ""


Chain = tuple[Link, ...]
"""The metastore first, the securable itself last."""

Ownership = Literal["no", "object", "chain"]
"""Whether ownership allows an operation: not at all, of the object itself, or of it or anything above it."""


class Rule(NamedTuple):
    """What an operation needs on one securable: one of the privileges `any_of` and each of `all_of`.

    Ownership replaces them as `owner` says; MANAGE counts as ownership of the chain. An operation `inside` a container
    acts on its children and needs its USE privilege, too. A rule without privileges and owners needs only that the
    securable is visible.
    """

    any_of: tuple[Privilege, ...] = ()
    all_of: tuple[Privilege, ...] = ()
    owner: Ownership = "chain"
    inside: bool = False

    @property
    def is_visibility(self) -> bool:
        return self.owner == "no" and not self.any_of and not self.all_of

    def __str__(self) -> str:
        texts = (" and ".join(self.all_of), " or ".join(self.any_of))
        return " and ".join(text for text in texts if text) or "MANAGE or ownership"


# One line for each thing that can be done; the routes of every API name their rules by these constants.
VISIBLE: Final = Rule(owner="no")
MANAGED: Final = Rule()

CREATE_CATALOG: Final = Rule(("CREATE CATALOG",))
CREATE_SCHEMA: Final = Rule(("CREATE SCHEMA",), inside=True)
CREATE_TABLE: Final = Rule(("CREATE TABLE",), inside=True)
CREATE_VIEW: Final = Rule(("CREATE VIEW", "CREATE TABLE"), inside=True)
CREATE_VOLUME: Final = Rule(("CREATE VOLUME",), inside=True)
CREATE_FUNCTION: Final = Rule(("CREATE FUNCTION",), inside=True)
CREATE_MODEL: Final = Rule(("CREATE MODEL",), inside=True)

READ_TABLE: Final = Rule(("SELECT", "MODIFY"))
SCAN_TABLE: Final = Rule(("SELECT", "MODIFY"), owner="object")
READ_DATA: Final = Rule(("SELECT",), owner="object")
WRITE_DATA: Final = Rule(all_of=("SELECT", "MODIFY"), owner="object")
MODIFY_TABLE: Final = Rule(("MODIFY",), owner="object")
PURGE_TABLE: Final = Rule(("MODIFY",), owner="object")

READ_VIEW: Final = Rule(("SELECT",))
EXECUTE: Final = Rule(("EXECUTE",))
READ_VOLUME: Final = Rule(("READ VOLUME", "WRITE VOLUME"))
READ_VOLUME_DATA: Final = Rule(("READ VOLUME",), owner="object")
WRITE_VOLUME_DATA: Final = Rule(all_of=("READ VOLUME", "WRITE VOLUME"), owner="object")
READ_MODEL_DATA: Final = Rule(("EXECUTE",), owner="object")
WRITE_MODEL_DATA: Final = Rule(owner="object")

CREATE_STORAGE_CREDENTIAL: Final = Rule(("CREATE STORAGE CREDENTIAL",))
CREATE_EXTERNAL_LOCATION: Final = Rule(("CREATE EXTERNAL LOCATION",))
CREATE_EXTERNAL_TABLE: Final = Rule(("CREATE EXTERNAL TABLE",))
CREATE_EXTERNAL_VOLUME: Final = Rule(("CREATE EXTERNAL VOLUME",))
CREATE_MANAGED_STORAGE: Final = Rule(("CREATE MANAGED STORAGE",))
READ_FILES: Final = Rule(("READ FILES",), owner="object")
WRITE_FILES: Final = Rule(all_of=("READ FILES", "WRITE FILES"), owner="object")
IMPERSONATE: Final = Rule(("IMPERSONATE",), owner="no")
WRITE_LINEAGE: Final = Rule(("WRITE LINEAGE",))


class Needs(NamedTuple):
    """What a route needs: a rule on one securable, and further rules for some requests, by situation.

    `on` says which securable of the request the rule is about. A route that needs `nothing` takes requests without a
    token, and one that needs a `caller` takes every authenticated request.
    """

    on: SecurableType | Literal["nothing", "caller", "view", "tables"]
    rule: Rule = VISIBLE
    further: Mapping[str, Rule] = {}


OPEN: Final = Needs("nothing")
CHANGE_GRANTS: Final = Needs("metastore", MANAGED)
READ_GRANTS: Final = Needs("metastore", further={"all": MANAGED})
PATH_CREDENTIALS: Final = Needs(
    "external_location", READ_FILES, {"write": WRITE_FILES, "create": CREATE_EXTERNAL_TABLE}
)
AUTHENTICATED: Final = Needs("caller")

Outcome = Literal["allowed", "forbidden", "hidden"]


class Verdict(NamedTuple):
    """The result of one decision: what is missing where, unless it is allowed.

    `hidden`: the caller has no right on the securable or below it, and must not learn whether it exists.
    """

    outcome: Outcome
    missing: str = ""
    link: Link | None = None


ALLOWED: Final = Verdict("allowed")


class Rights(NamedTuple):
    """What a set of subjects holds on a chain: per link, the privileges and ownership, with those from above."""

    held: Sequence[Bits]
    owned: Sequence[bool]
    owns_object: bool


def rights_on(chain: Chain, grants: Sequence[Mapping[str, Bits] | None], subjects: Collection[str]) -> Rights:
    """The rights of the subjects; `grants` are the privileges by subject of each link, None if it has no grants."""
    held, owned = [], []
    bits, is_owner = 0, False
    for link, assigned in zip(chain, grants, strict=True):
        if assigned:
            for subject in subjects:
                bits |= assigned.get(subject, 0)
        is_owner = is_owner or link.owner in subjects
        held.append(bits)
        owned.append(is_owner)
    # What has no owner belongs to the owner of the metastore: it is older than owners, or the server made it.
    return Rights(held, owned, (chain[-1].owner or chain[0].owner) in subjects)


def shows(kind: SecurableType, bits: Bits) -> bool:
    """Whether these privileges make a securable of that type visible when they are held on it or above it."""
    return bool(bits & _SHOWING[kind])


def is_visible(chain: Chain, rights: Rights, *, has_grant_below: bool = False) -> bool:
    """Whether the caller may know that the last link exists.

    `has_grant_below`: whether the caller holds a grant on something inside the last link. Every caller knows the
    metastore.
    """
    kind = chain[-1].type
    return kind == "metastore" or rights.owned[-1] or shows(kind, rights.held[-1]) or has_grant_below


def judge(rule: Rule, chain: Chain, rights: Rights) -> Verdict:
    """Whether the rule is met on the last link of the chain, which is visible to the caller.

    Every container on the way needs its USE privilege, unless the caller owns or manages that container.
    """
    if rule.is_visibility:
        return ALLOWED
    entered = chain if rule.inside else chain[:-1]
    for link, bits, is_owner in zip(entered, rights.held, rights.owned, strict=False):
        use = _CONTAINERS.get(link.type)
        if use and not is_owner and not bits & (_BIT[use] | _MANAGE):
            return Verdict("forbidden", f"{use} on {link.type} {link.name}", link)
    if _is_met(rule, rights):
        return ALLOWED
    return Verdict("forbidden", f"{rule} on {chain[-1].type} {chain[-1].name}", chain[-1])


def _is_met(rule: Rule, rights: Rights) -> bool:
    held = rights.held[-1]
    match rule.owner:
        case "chain" if rights.owned[-1] or held & _MANAGE:
            return True
        case "object" if rights.owns_object:
            return True
        case _:
            needed = bits_of(rule.all_of)
            has_any = not rule.any_of or bool(held & bits_of(rule.any_of))
            return bool(rule.any_of or rule.all_of) and has_any and held & needed == needed

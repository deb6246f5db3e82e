"""Administrators and owners that change the manifest, and changes of the owner (A11, A12)."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from proof.answers import BUSY, FORBIDDEN, OK, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.describe import describe_value
from proof.grants.manifest import MANIFEST, RULES, Grant, Manifest, bump_manifest
from proof.linearizable import is_linearizable
from proof.rules import Rules
from proof.steps import Cell, Result, Step, call, goto, put, read
from proof.store import kept

ATTEMPTS_MAX: Final = 4
OWNER: Final = Cell[str]("owner")
THERE, NOT_THERE = "there", "not there"


class Administer(NamedTuple):
    """A change by an administrator, who has a grant on "admin"."""

    principal: str
    verb: Literal["allow", "revoke"]
    grant: Grant
    tag: str = "administer"


class OwnerAllows(NamedTuple):
    principal: str
    grant: Grant
    tag: str = "owner allows"


class Transfer(NamedTuple):
    owner: str
    tag: str = "transfer"


class Look(NamedTuple):
    grant: Grant
    tag: str = "look"


class ShowAll(NamedTuple):
    tag: str = "show all"


Request: TypeAlias = Administer | OwnerAllows | Transfer | Look | ShowAll
World: TypeAlias = tuple[frozenset[Grant], str]
START: Final[World] = (frozenset((Grant("A", "admin"), Grant("B", "admin"))), "o")


def ordered(grants: frozenset[Grant]) -> Manifest:
    return tuple(sorted(grants))


def changed(grants: frozenset[Grant], request: Administer) -> frozenset[Grant]:
    return grants | {request.grant} if request.verb == "allow" else grants - {request.grant}


def administer(request: Administer, rules: Rules, draft: Manifest = (), attempt: int = 0) -> Step[str]:
    """A11: decide again after a lost swap."""
    if attempt == ATTEMPTS_MAX:
        return BUSY
    version, manifest = yield from read(MANIFEST)
    if not draft or "A11" in rules:
        if Grant(request.principal, "admin") not in manifest:
            return FORBIDDEN
        draft = ordered(changed(frozenset(manifest), request))
    written = yield from put(MANIFEST, draft, version)
    return OK if written.outcome == "ok" else (yield from goto(administer, request, rules, draft, attempt + 1))


def allow_as_owner(request: OwnerAllows, rules: Rules, attempt: int = 0) -> Step[str]:
    """A12: read the manifest, then the owner, then swap the manifest."""
    if attempt == ATTEMPTS_MAX:
        return BUSY
    if "A12 order" in rules:
        version, manifest = yield from read(MANIFEST)
        _, owner = yield from read(OWNER)
    else:
        _, owner = yield from read(OWNER)
        version, manifest = yield from read(MANIFEST)
    if owner != request.principal:
        return FORBIDDEN
    written = yield from put(MANIFEST, ordered(frozenset((*manifest, request.grant))), version)
    return OK if written.outcome == "ok" else (yield from goto(allow_as_owner, request, rules, attempt + 1))


def transfer(owner: str, rules: Rules) -> Step[str]:
    """A12: write the owner, then bump the manifest, then answer."""
    version, _ = yield from read(OWNER)
    written = yield from put(OWNER, owner, version)
    if written.outcome != "ok":
        return BUSY
    if "A12 bump" in rules:
        yield from call(bump_manifest)
    return OK


def look(grant: Grant) -> Step[str]:
    _, manifest = yield from read(MANIFEST)
    return THERE if grant in manifest else NOT_THERE


def specification(world: World, request: Request) -> tuple[Result, World]:
    grants, owner = world
    match request:
        case Administer(principal):
            if Grant(principal, "admin") not in grants:
                return FORBIDDEN, world
            return OK, (changed(grants, request), owner)
        case OwnerAllows(principal, grant):
            return (OK, (grants | {grant}, owner)) if owner == principal else (FORBIDDEN, world)
        case Transfer(new):
            return OK, (grants, new)
        case Look(grant):
            return (THERE if grant in grants else NOT_THERE), world
        case ShowAll():
            return ordered(grants), world


def actor(number: int, request: Request, after: tuple[int, ...], rules: Rules) -> Actor:
    name = f"{number}: {describe_value(request)}"
    match request:
        case Administer():
            return Actor(name, administer, (request, rules), after)
        case OwnerAllows():
            return Actor(name, allow_as_owner, (request, rules), after)
        case Transfer(owner):
            return Actor(name, transfer, (owner, rules), after)
        case Look(grant):
            return Actor(name, look, (grant,), after)
        case ShowAll():
            raise AssertionError("the manifest is read by the judgement only")


def changes(requests: Sequence[tuple[Request, tuple[int, ...]]], rules: Rules = RULES) -> System:
    actors = [actor(number, request, after, rules) for number, (request, after) in enumerate(requests)]
    plain = [request for request, _ in requests]

    def judge(moment: Moment) -> None:
        manifest = ordered(frozenset(kept(moment.store, MANIFEST)))
        if not is_linearizable(
            plain,
            moment.masks,
            moment.results,
            specification=specification,
            start=START,
            unsure=UNSURE,
            views=((ShowAll(), manifest),),
        ):
            answers = (f"{one.name}={result}" for one, result in zip(actors, moment.results, strict=True))
            raise Violation(f"not linearizable: {', '.join(answers)}")

    store = {MANIFEST.key: (1, ordered(START[0])), OWNER.key: (1, START[1])}
    return System(store, actors, judge, keeps_order=True)

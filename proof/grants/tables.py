"""Loads and commits of a table beside changes of its name, its content and its grants (A1–A7).

Answers are judged against one sequential catalog that checks the right at the moment of the request.
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, TypeAlias

from proof.answers import BUSY, FORBIDDEN, NO_TABLE, OK, UNKNOWN, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.describe import describe_value
from proof.grants.manifest import MANIFEST, RULES, Allow, Grant, Manifest, Revoke, allow, revoke
from proof.linearizable import is_linearizable
from proof.rules import Rules
from proof.steps import Cell, Step, call, get, goto, put, read, read_together
from proof.store import Store, kept

ROUNDS_MAX: Final = 4
ATTEMPTS_MAX: Final = 3
FREE: Final = "free"
NAME: Final = Cell[str]("name")
# Without A3, a grant names the table by its name.
NAME_AS_ID: Final = "X"
CONTENTS: Final = (("a", "a0"), ("b", "b0"))


class Load(NamedTuple):
    principal: str
    tag: str = "load"


class Commit(NamedTuple):
    """Append a word to the content of table a."""

    principal: str
    word: str
    tag: str = "commit"


class FencedRevoke(NamedTuple):
    grant: Grant
    tag: str = "fenced revoke"


class Write(NamedTuple):
    """A commit by a principal whose right does not change."""

    object_id: str
    content: str
    tag: str = "write"


class Repoint(NamedTuple):
    """A drop, a create or a rename, as a reader of the name sees it: the name leads to another object, or to none."""

    object_id: str
    tag: str = "repoint"


class Show(NamedTuple):
    tag: str = "show"


Request: TypeAlias = Load | Commit | Allow | Revoke | FencedRevoke | Write | Repoint | Show


class Seen(NamedTuple):
    """What a server remembers: the name, the pointer of that id and the manifest, each with its version."""

    name: tuple[int, str]
    pointer: tuple[int, str]
    manifest: tuple[int, Manifest]


def pointer_of(object_id: str) -> Cell[str]:
    """The pointer stands for the content."""
    return Cell(f"pointer:{object_id}")


def load(principal: str, seen: Seen, rules: Rules, rounds: int = 0) -> Step[str]:
    """One round if nothing changed since the server saw the table."""
    if rounds == ROUNDS_MAX:
        return BUSY
    object_id = seen.name[1]
    name, pointer, manifest = yield from read_together(NAME, pointer_of(object_id), MANIFEST)
    if "A1" not in rules:
        manifest = seen.manifest
    if name[1] == FREE:
        return NO_TABLE
    if name[1] != object_id:
        found = yield from read(pointer_of(name[1]))
        now = Seen(name, found, manifest)
        if "A4" not in rules or "A2" not in rules:
            return decide(principal, object_id if "A4" not in rules else name[1], now, rules)
        return (yield from goto(load, principal, now, rules, rounds + 1))
    now = Seen(name, pointer, manifest)
    if now == seen or "A2" not in rules:
        return decide(principal, object_id, now, rules)
    if manifest == seen.manifest and name == seen.name:
        again = yield from read(MANIFEST)  # In the round that reads the new metadata file.
        if again == manifest:
            return decide(principal, object_id, now, rules)
        now = now._replace(manifest=again)
    return (yield from goto(load, principal, now, rules, rounds + 1))


def decide(principal: str, object_id: str, seen: Seen, rules: Rules) -> str:
    grant = Grant(principal, object_id if "A3" in rules else NAME_AS_ID)
    return seen.pointer[1] if grant in seen.manifest[1] else FORBIDDEN


def commit(
    principal: str,
    word: str,
    remembered: tuple[int, Manifest],
    rules: Rules,
    attempt: int = 0,
    is_uncertain: bool = False,  # noqa: FBT001, FBT002 -- actors are started by position
) -> Step[str]:
    if attempt == ATTEMPTS_MAX:
        return BUSY
    if "A6" in rules:
        pointer = yield from read(pointer_of("a"))  # Or remembered.
        manifest = yield from read(MANIFEST)  # In round 1, together with the metadata file.
    else:
        pointer, manifest = yield from read_together(pointer_of("a"), MANIFEST)
    if is_uncertain and word in pointer[1]:
        return OK  # C5.
    if "A1" not in rules or (attempt and "A6 attempt" not in rules):
        manifest = remembered
    if Grant(principal, "a") not in manifest[1]:
        return FORBIDDEN
    written = yield from put(pointer_of("a"), pointer[1] + word, pointer[0])
    if written.outcome == "ok":
        return OK
    if written.outcome == "unknown":
        now, _ = yield from read(pointer_of("a"))
        if now == pointer[0] and "A7" in rules:
            return UNKNOWN  # The swap may still be applied, so the manifest decides nothing.
    return (yield from goto(commit, principal, word, manifest, rules, attempt + 1, written.outcome == "unknown"))


def write(object_id: str, content: str) -> Step[str]:
    version, _ = yield from get(pointer_of(object_id))
    written = yield from put(pointer_of(object_id), content, version)
    return OK if written.outcome == "ok" else (yield from goto(write, object_id, content))


def repoint(object_id: str) -> Step[str]:
    version, _ = yield from read(NAME)
    written = yield from put(NAME, object_id, version)
    return OK if written.outcome == "ok" else (yield from goto(repoint, object_id))


def show() -> Step[str]:
    _, content = yield from read(pointer_of("a"))
    return content


def revoke_fenced(grant: Grant, rules: Rules) -> Step[str]:
    """A5: change the manifest, then bump the pointer, then answer."""
    if "A5 order" not in rules:
        yield from call(bump_pointer)
    yield from call(revoke, grant)
    if "A5" in rules and "A5 order" in rules:
        yield from call(bump_pointer)
    return OK


def bump_pointer() -> Step[str]:
    version, content = yield from read(pointer_of("a"))
    written = yield from put(pointer_of("a"), content, version)
    return OK if written.outcome == "ok" else (yield from goto(bump_pointer))


class World(NamedTuple):
    name: str
    contents: tuple[tuple[str, str], ...]
    grants: frozenset[Grant]

    def content_of(self, object_id: str) -> str:
        return dict(self.contents)[object_id]

    def with_content(self, object_id: str, content: str) -> "World":
        return self._replace(contents=tuple(sorted({**dict(self.contents), object_id: content}.items())))


def specification(world: World, request: Request) -> tuple[str, World]:
    match request:
        case Load(principal):
            if world.name == FREE:
                return NO_TABLE, world
            is_allowed = Grant(principal, world.name) in world.grants
            return (world.content_of(world.name) if is_allowed else FORBIDDEN), world
        case Commit(principal, word):
            if Grant(principal, "a") not in world.grants:
                return FORBIDDEN, world
            return OK, world.with_content("a", world.content_of("a") + word)
        case Allow(grant):
            return OK, world._replace(grants=world.grants | {grant})
        case Revoke(grant) | FencedRevoke(grant):
            return OK, world._replace(grants=world.grants - {grant})
        case Write(object_id, content):
            return OK, world.with_content(object_id, content)
        case Repoint(object_id):
            return OK, world._replace(name=object_id)
        case Show():
            return world.content_of("a"), world


def actor(number: int, request: Request, after: tuple[int, ...], seen: Seen, rules: Rules) -> Actor:
    name = f"{number}: {describe_value(request)}"
    match request:
        case Load(principal):
            return Actor(name, load, (principal, seen, rules), after)
        case Commit(principal, word):
            return Actor(name, commit, (principal, word, seen.manifest, rules), after)
        case Allow(grant):
            return Actor(name, allow, (grant,), after)
        case Revoke(grant):
            return Actor(name, revoke, (grant,), after)
        case FencedRevoke(grant):
            return Actor(name, revoke_fenced, (grant, rules), after)
        case Write(object_id, content):
            return Actor(name, write, (object_id, content), after)
        case Repoint(object_id):
            return Actor(name, repoint, (object_id,), after)
        case Show():
            return Actor(name, show, (), after)


Started: TypeAlias = Sequence[tuple[Request, tuple[int, ...]]]
INITIAL: Final = (Grant("p", "a"),)


def start(requests: Started, rules: Rules, grants: Manifest) -> tuple[Store, list[Actor]]:
    names = [Grant(one.principal, NAME_AS_ID) for one in grants if one.object_id == "a" and "A3" not in rules]
    manifest = (*grants, *names)
    seen = Seen((1, "a"), (1, "a0"), (1, manifest))
    actors = [actor(number, request, after, seen, rules) for number, (request, after) in enumerate(requests)]
    contents: dict[str, tuple[int, Hashable]] = {pointer_of(one).key: (1, content) for one, content in CONTENTS}
    return {MANIFEST.key: (1, manifest), NAME.key: (1, "a"), **contents}, actors


def system(requests: Started, rules: Rules = RULES, *, grants: Manifest = INITIAL, losable: int = 0) -> System:
    """Each request comes with the indexes of the requests that have answered before it begins."""
    store, actors = start(requests, rules, grants)
    plain = [request for request, _ in requests]
    world = World("a", CONTENTS, frozenset(grants))

    def judge(moment: Moment) -> None:
        content = kept(moment.store, pointer_of("a"))
        for request, result in zip(plain, moment.results, strict=True):
            if isinstance(request, Commit) and result == FORBIDDEN and request.word in content:
                raise Violation("answered 403 and applied")
        if not is_linearizable(
            plain,
            moment.masks,
            moment.results,
            specification=specification,
            start=world,
            unsure=UNSURE,
            views=((Show(), content),),
        ):
            answers = (f"{one.name}={result}" for one, result in zip(actors, moment.results, strict=True))
            raise Violation(f"not linearizable: {', '.join(answers)}")

    return System(store, actors, judge, losable=losable, keeps_order=True)


def started_after(requests: Started, rules: Rules = RULES) -> System:
    """Only the weaker promise: a request that begins after the answer of the revocation is refused."""
    store, actors = start(requests, rules, INITIAL)
    plain = [request for request, _ in requests]
    revocations = [index for index, request in enumerate(plain) if isinstance(request, Revoke)]

    def judge(moment: Moment) -> None:
        for request, result, mask in zip(plain, moment.results, moment.masks, strict=True):
            is_late = mask is not None and any(mask >> index & 1 for index in revocations)
            if isinstance(request, Commit) and is_late and result not in {*UNSURE, FORBIDDEN}:
                raise Violation("a request that began after the revocation was answered succeeds")

    return System(store, actors, judge, keeps_order=True)

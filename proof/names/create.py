"""Create a table (N1 to N8), and stage a table that a later commit creates."""

from typing import Final, NamedTuple

from proof.answers import BUSY, CONFLICT, EXPIRED, INVALID, NO_NAMESPACE, NO_TABLE, OK, SWEPT, UNKNOWN
from proof.names.entries import (
    Active,
    CreateClaim,
    Entry,
    New,
    Pending,
    Pointer,
    create_claim,
    name_cell,
    namespace_cell,
    pointer_cell,
    space_of,
    stage_cell,
)
from proof.names.resolution import confirm_namespace, free, living, settle
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, delete, get, goto, put

TRIES_MAX: Final = 2


class Creation(NamedTuple):
    """One attempt. `request` names the request and is the content of its table; a retry has the same.

    `key` is the idempotency key. With `is_staged` the client chose the uuid when it staged the table, and sends it.
    `is_ahead`: the pointer was written before the name was read (N2 ahead).
    """

    actor: str
    name: str
    uuid: str
    request: str
    rules: Rules
    key: str | None = None
    is_staged: bool = False
    is_ahead: bool = False
    namespace_id: str = ""
    tries: int = 0


def create_ahead(attempt: Creation) -> Step[str]:
    """N2 ahead: write the pointer before anything is read. If the creation is refused, the pointer is killed."""
    answer = yield from put(pointer_cell(attempt.uuid), Pointer("unbound", attempt.request), ABSENT)
    return BUSY if answer.outcome == "unknown" else (yield from goto(create, attempt._replace(is_ahead=True)))


def create(attempt: Creation) -> Step[str]:
    """N1: read the namespace, the claim and the name."""
    name, rules = attempt.name, attempt.rules
    _, namespace = yield from get(namespace_cell(space_of(name)))
    here = namespace.id if namespace else None
    if attempt.key:
        claim = CreateClaim("open" if here else NO_NAMESPACE, attempt.uuid, here or "")
        answer = yield from put(create_claim(attempt.key), claim, ABSENT)
        if answer.outcome != "ok":
            _, found = yield from get(create_claim(attempt.key))
            if found is None:
                return BUSY  # Our own claim is still in flight.
            claim = found
        if claim.status != "open":
            return claim.status
        attempt, here = attempt._replace(uuid=claim.uuid), claim.namespace_id
    if here is None:
        return NO_NAMESPACE
    if namespace and namespace.state == "dropping" and "N6" not in rules:
        return BUSY
    return (yield from goto(take_name, attempt._replace(namespace_id=here)))


def take_name(attempt: Creation) -> Step[str]:
    """N2: read the name, then the pointer. In this order, a creation that was renamed since is found here."""
    settled = yield from call(settle, attempt.name, attempt.rules)
    if settled is None:
        return BUSY
    if settled.uuid == attempt.uuid:
        return (yield from goto(judge_own, attempt))
    if settled.uuid:
        return (yield from goto(fail, attempt))
    version, pointer = yield from get(pointer_cell(attempt.uuid))
    if pointer is None:
        answer = yield from put(pointer_cell(attempt.uuid), Pointer("unbound", attempt.request), ABSENT)
        if answer.outcome == "unknown" or attempt.tries == TRIES_MAX:
            return BUSY  # No name without a pointer that is known to be there.
        if answer.outcome == "lost":
            return (yield from goto(take_name, again(attempt)))
    elif pointer.state == "killed":
        return (yield from goto(start_over, attempt))
    elif not is_mine(pointer, attempt):
        return (yield from goto(take_over, attempt, version, pointer))
    elif pointer.state in ("live", "dropped"):
        return OK
    return (yield from goto(write_name, attempt, settled.version))


def again(attempt: Creation) -> Creation:
    return attempt._replace(tries=attempt.tries + 1)


def shows(entry: Entry | None, uuid: str) -> bool:
    return isinstance(entry, New | Active | Pending) and entry.uuid == uuid


def is_mine(pointer: Pointer, attempt: Creation) -> bool:
    """S2: the uuid of a stage is no proof: another request may have sent it too."""
    return pointer.content == attempt.request or "S2" not in attempt.rules


def judge_own(attempt: Creation) -> Step[str]:
    """The name has our uuid, its namespace exists and its pointer is bound: the creation of its content happened."""
    _, pointer = yield from get(pointer_cell(attempt.uuid))
    if pointer is None or pointer.state == "killed":
        return BUSY
    return OK if is_mine(pointer, attempt) else CONFLICT


def take_over(attempt: Creation, version: int, pointer: Pointer) -> Step[str]:
    """S3: another request with our uuid made the pointer. It is ours only if that request did not happen (G5)."""
    if pointer.state in ("live", "dropped"):
        return CONFLICT
    if attempt.tries == TRIES_MAX:
        return BUSY
    if "S3" not in attempt.rules:
        yield from put(pointer_cell(attempt.uuid), Pointer("unbound", attempt.request), version)
        return (yield from goto(take_name, again(attempt)))
    condemned = yield from put(pointer_cell(attempt.uuid), pointer._replace(state="condemned"), version)
    if condemned.outcome == "ok":
        _, entry = yield from get(name_cell(attempt.name))
        if shows(entry, attempt.uuid):
            return (yield from goto(take_name, again(attempt)))  # It may have happened: settle that.
        yield from put(pointer_cell(attempt.uuid), Pointer("unbound", attempt.request), condemned.version)
    return (yield from goto(take_name, again(attempt)))


def start_over(attempt: Creation) -> Step[str]:
    """N10: the pointer was killed, so this uuid is never created. A keyed request takes a new one; a stage ends."""
    if attempt.is_staged or not attempt.key:
        return (yield from goto(refuse, attempt, EXPIRED))
    if "N10" not in attempt.rules or attempt.tries == TRIES_MAX:
        return BUSY
    cell = create_claim(attempt.key)
    version, claim = yield from get(cell)
    if claim is None:
        return BUSY
    if claim.status != "open":
        return claim.status
    if claim.uuid == attempt.uuid:
        yield from put(cell, claim._replace(uuid=attempt.uuid + "'"), version)
    return (yield from goto(create, again(attempt)))


def refuse(attempt: Creation, verdict: str) -> Step[str]:
    """G3: with a key, the claim records the refusal before it is answered."""
    if not attempt.key:
        return verdict
    cell = create_claim(attempt.key)
    version, claim = yield from get(cell)
    if claim is None:
        return BUSY
    if claim.status != "open":
        return claim.status
    if claim.uuid != attempt.uuid:
        return BUSY  # N10: another attempt goes on with a fresh uuid, and this verdict is about the old one.
    answer = yield from put(cell, claim._replace(status=verdict), version)
    return verdict if answer.outcome == "ok" else BUSY


def fail(attempt: Creation) -> Step[str]:
    """N8: the name belongs to another table. Before the answer, no attempt under the key may still succeed."""
    cell = pointer_cell(attempt.uuid)
    version, pointer = yield from get(cell)
    if pointer and (not is_mine(pointer, attempt) or pointer.state in ("live", "dropped")):
        return OK if is_mine(pointer, attempt) else CONFLICT
    if (pointer and pointer.state == "killed") or not (attempt.key or attempt.is_ahead):
        return (yield from goto(refuse, attempt, CONFLICT))
    if "N8" not in attempt.rules:
        yield from delete(cell, version)
        return CONFLICT
    if attempt.tries > TRIES_MAX:
        return BUSY
    if pointer:
        condemned = yield from put(cell, pointer._replace(state="condemned"), version)
        if condemned.outcome != "ok":
            return (yield from goto(fail, again(attempt)))
        version = condemned.version
        held, entry = yield from get(name_cell(attempt.name))
        if shows(entry, attempt.uuid):
            return (yield from goto(found_own, attempt, held))
    killed = yield from put(cell, Pointer("killed", attempt.request), version)
    if killed.outcome != "ok":
        return (yield from goto(fail, again(attempt)))
    return (yield from goto(refuse, attempt, CONFLICT))


def write_name(attempt: Creation, version: int) -> Step[str]:
    """N3: the creation happens here if N4 confirms it."""
    entry = New(attempt.uuid, attempt.namespace_id) if "N4" in attempt.rules else Active(attempt.uuid)
    answer = yield from put(name_cell(attempt.name), entry, version)
    if answer.outcome == "ok":
        return (yield from goto(confirm, attempt, answer.version))
    held, found = yield from get(name_cell(attempt.name))
    if found == entry:
        return (yield from goto(confirm, attempt, held))
    if shows(found, attempt.uuid):
        return (yield from goto(found_own, attempt, held))
    if attempt.tries == TRIES_MAX:
        return UNKNOWN  # G2: the write may still land: nothing is certain, nothing may be killed.
    if answer.outcome == "unknown" and held == version:
        return (yield from goto(write_name, again(attempt), version))
    return (yield from goto(take_name, again(attempt)))


def found_own(attempt: Creation, version: int) -> Step[str]:
    """Another attempt wrote our uuid. "N4 name": check the namespace id in the name, not the one that we read."""
    if "N4 name" not in attempt.rules:
        return (yield from goto(confirm, attempt, version))
    if attempt.tries > TRIES_MAX:
        return BUSY
    return (yield from goto(take_name, again(attempt)))


def confirm(attempt: Creation, version: int) -> Step[str]:
    """N4, N5: the name is written. It exists once the namespace and the pointer are read and exist."""
    name, uuid, rules = attempt.name, attempt.uuid, attempt.rules
    is_there = yield from call(confirm_namespace, name, attempt.namespace_id, rules)
    if is_there == "unsure":
        return BUSY
    if not is_there:
        _, pointer = yield from get(pointer_cell(uuid))
        if pointer and pointer.state in ("live", "dropped"):
            return OK if is_mine(pointer, attempt) else CONFLICT
        yield from free(name, version, uuid, attempt.actor, rules)
        return NO_NAMESPACE
    if "N5" not in rules:
        return OK
    alive = yield from call(living, uuid)
    if alive == "unsure":
        return BUSY
    if alive:
        return OK if is_mine(alive, attempt) else CONFLICT
    _, pointer = yield from get(pointer_cell(uuid))
    if pointer and pointer.state == "dropped":
        return OK if is_mine(pointer, attempt) else CONFLICT
    yield from free(name, version, uuid, attempt.actor, rules)
    return BUSY


def stage(name: str, uuid: str) -> Step[str]:
    """Validated like a creation; it only writes a record, and no table is visible."""
    _, namespace = yield from get(namespace_cell(space_of(name)))
    if namespace is None:
        return NO_NAMESPACE
    answer = yield from put(stage_cell(uuid), name, ABSENT)
    return UNKNOWN if answer.outcome == "unknown" else OK


def create_staged(attempt: Creation) -> Step[str]:
    """S1: a commit that asserts the creation starts from empty metadata. It also continues if the stage is missing."""
    _, staged_for = yield from get(stage_cell(attempt.uuid))
    if staged_for is None and "S1" not in attempt.rules:
        return NO_TABLE
    if staged_for not in (None, attempt.name):
        return INVALID
    return (yield from goto(create, attempt))


def expire_stage(uuid: str, rules: Rules) -> Step[str]:
    """S4: the janitor deletes only the record: a commit may be in progress, or may have happened."""
    version, _ = yield from get(stage_cell(uuid))
    if "S4" not in rules:
        at, pointer = yield from get(pointer_cell(uuid))
        if pointer and pointer.state == "unbound":
            yield from put(pointer_cell(uuid), pointer._replace(state="killed"), at)
    if version:
        yield from delete(stage_cell(uuid), version)
    return SWEPT

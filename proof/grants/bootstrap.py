"""The secret of the first administrator: created by the first server, replaced by an operator (A13)."""

from typing import Final

from proof.answers import BUSY
from proof.checker import Actor, Moment, System, Violation
from proof.grants.manifest import RULES
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, get, goto, put, read
from proof.store import held, present

ATTEMPTS_MAX: Final = 3
# Every secret that was ever written; the last one is valid.
SECRETS: Final = Cell[tuple[str, ...]]("secrets")
PRINTED, NOTHING = "printed", "nothing"


def print_secret(secret: str) -> Step[str]:
    """The terminal is an object here. A lost answer of this write changes nothing."""
    yield from put(Cell[str](f"printed:{secret}"), "yes", ABSENT)
    return PRINTED


def start_server(secret: str, rules: Rules, attempt: int = 0) -> Step[str]:
    """Write the secret if the store has no manifest, and print it if it is the one in the store."""
    _, secrets = yield from get(SECRETS)
    if secrets is not None:
        return (yield from print_secret(secret)) if attempt and secrets == (secret,) else NOTHING
    if attempt == ATTEMPTS_MAX:
        return BUSY
    if "A13" not in rules:
        yield from print_secret(secret)
    written = yield from put(SECRETS, (secret,), ABSENT)
    if written.outcome == "lost":
        return NOTHING
    if written.outcome == "ok" or "A13 unknown" not in rules:
        return (yield from print_secret(secret))
    return (yield from goto(start_server, secret, rules, attempt + 1))


def recover(secret: str) -> Step[str]:
    """An operator, who can write to the store, replaces the secret."""
    version, secrets = yield from get(SECRETS)
    if secrets is None:
        return NOTHING
    written = yield from put(SECRETS, (*secrets, secret), version)
    if written.outcome == "unknown":
        _, secrets = yield from read(SECRETS)
    is_written = written.outcome == "ok" or (written.outcome == "unknown" and secret in secrets)
    return (yield from print_secret(secret)) if is_written else NOTHING


def first_start(rules: Rules = RULES, *, servers: int = 2, recoveries: int = 0, losable: int = 0) -> System:
    actors = [Actor(f"server{number}", start_server, (f"server{number}", rules)) for number in range(servers)]
    actors += [Actor(f"recover{number}", recover, (f"recover{number}",)) for number in range(recoveries)]
    return System({}, actors, judge, losable=losable)


def judge(moment: Moment) -> None:
    printed = {key.removeprefix("printed:") for key in present(moment.store, "printed:")}
    if not printed <= set(held(moment.store, SECRETS) or ()):
        raise Violation("a secret was printed that was never valid")
    if len([secret for secret in printed if secret.startswith("server")]) > 1:
        raise Violation("two servers printed a first secret")

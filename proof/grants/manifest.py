"""The manifest of a workspace, and the requests that change it."""

from typing import Final, NamedTuple, TypeAlias

from proof.answers import OK
from proof.rules import of
from proof.steps import Cell, Step, goto, put, read

RULES: Final = of("A")


class Grant(NamedTuple):
    """A principal may read and change an object, which is known by the id that the server created for it."""

    principal: str
    object_id: str


Manifest: TypeAlias = tuple[Grant, ...]
MANIFEST: Final = Cell[Manifest]("manifest")


class Allow(NamedTuple):
    grant: Grant
    tag: str = "allow"


class Revoke(NamedTuple):
    grant: Grant
    tag: str = "revoke"


def allow(grant: Grant) -> Step[str]:
    version, manifest = yield from read(MANIFEST)
    written = yield from put(MANIFEST, (*manifest, grant), version)
    return OK if written.outcome == "ok" else (yield from goto(allow, grant))


def revoke(grant: Grant) -> Step[str]:
    version, manifest = yield from read(MANIFEST)
    written = yield from put(MANIFEST, tuple(one for one in manifest if one != grant), version)
    return OK if written.outcome == "ok" else (yield from goto(revoke, grant))


def bump_manifest() -> Step[str]:
    version, manifest = yield from read(MANIFEST)
    written = yield from put(MANIFEST, manifest, version)
    return OK if written.outcome == "ok" else (yield from goto(bump_manifest))

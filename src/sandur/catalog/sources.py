"""Who changes something: what a receipt says about the origin of a commit."""

import hashlib
from typing import Literal, NamedTuple

import msgspec


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a change came from. A pipeline's run is known exactly; a REST client declares itself."""

    kind: Literal["rest", "pipeline", "admin", "unknown"] = "unknown"
    principal: str = ""
    client: str = ""
    run_id: str = ""
    task_id: str = ""


class Request(NamedTuple):
    """What every mutation carries beside its body.

    `key` is the idempotency key in canonical form, None when none was sent; `hash` identifies the body.
    """

    hash: str
    key: str | None = None
    source: Source = Source()

    @property
    def key_hash(self) -> str | None:
        """What stands for the key in the names of objects; None when no key was sent."""
        return hashlib.sha256(self.key.encode()).hexdigest() if self.key else None

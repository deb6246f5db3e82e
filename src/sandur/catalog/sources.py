"""The origin of a change: its source, which receipts contain, and its idempotency key."""

import hashlib
from typing import Literal, NamedTuple

import msgspec


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a change. The run of a pipeline is exact; a REST client only declares itself."""

    kind: Literal["rest", "pipeline", "admin", "unknown"] = "unknown"
    principal: str = ""
    client: str = ""
    run_id: str = ""
    task_id: str = ""


class Request(NamedTuple):
    """The part of a mutation that is not its body.

    `key` is the idempotency key in canonical form, None if the client sent none; `hash` identifies the body.
    """

    hash: str
    key: str | None = None
    source: Source = Source()

    @property
    def key_hash(self) -> str | None:
        """The hash of the key, for the keys of objects; None without a key."""
        return hashlib.sha256(self.key.encode()).hexdigest() if self.key else None

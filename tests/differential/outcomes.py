"""The outcome of one commit, in a form that compares different engines."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]


class Verdict(StrEnum):
    """The answer to the client."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"  # 409: the client must load again and retry.
    REFUSED = "refused"  # 400: a retry cannot succeed.


@dataclass(frozen=True)
class Outcome:
    """The verdict, with the new metadata when something changed and the message when something failed.

    `has_crashed` marks an unexpected failure of the engine (a null pointer, an index out of bounds): its verdict
    counts, but its text is not compared.
    """

    verdict: Verdict
    metadata: JsonObject | None = None
    text: bytes = b""
    message: str = ""
    has_crashed: bool = False


@dataclass(frozen=True)
class Commit:
    """One request against one state; `base` is None for a create transaction."""

    base: JsonObject | None
    base_text: bytes
    base_location: str
    request: JsonObject

    @property
    def updates(self) -> list[JsonObject]:
        updates = self.request.get("updates")
        return [u for u in updates if isinstance(u, dict)] if isinstance(updates, list) else []

    @property
    def requirements(self) -> list[JsonObject]:
        requirements = self.request.get("requirements")
        return [r for r in requirements if isinstance(r, dict)] if isinstance(requirements, list) else []

    def has(self, *actions: str) -> bool:
        """Whether the request contains one of these actions."""
        return any(update.get("action") in actions for update in self.updates)

    def parts(self, action: str, name: str) -> list[JsonObject]:
        """The objects called `name` in the updates of this action."""
        found = [update.get(name) for update in self.updates if update.get("action") == action]
        return [part for part in found if isinstance(part, dict)]

"""Credential access boundaries as Google evaluates them: rules, roles, and conditions in a part of CEL.

It shares no code with what makes boundaries, so that each is tested by the other. Both are our reading of Google's
documentation: only Google shows how Google evaluates a condition.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

RULES_MAX: Final = 10
BOUNDARY_CHARS_MAX: Final = 2_048

ROLES: Final[Mapping[str, frozenset[str]]] = {
    "roles/storage.objectViewer": frozenset({"storage.objects.get", "storage.objects.list"}),
    "roles/storage.objectAdmin": frozenset(
        f"storage.objects.{verb}" for verb in ("get", "list", "create", "delete", "update")
    ),
}
LIST_PREFIX: Final = "storage.googleapis.com/objectListPrefix"

_LEXEME: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\\n\r]|\\.)*'|"(?:[^"\\\n\r]|\\.)*")|(?P<name>[A-Za-z_]\w*)|(?P<mark>\|\||&&|[.,()!]))"""
)
_ESCAPE: Final = re.compile(r"\\(.)")


class NotAnExpression(Exception):
    """The text is outside of the part of CEL that is evaluated here."""


@dataclass(frozen=True)
class Request:
    """What a request wants, in the words of Google's conditions."""

    permission: str
    resource: str
    list_prefix: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule: on this resource, what these roles permit, if the condition holds."""

    resource: str
    permissions: frozenset[str]
    condition: str

    def allows(self, request: Request) -> bool:
        bucket = self.resource.removeprefix("//storage.googleapis.com/")
        is_covered = request.resource == bucket or request.resource.startswith(bucket + "/")
        return is_covered and request.permission in self.permissions and evaluate(self.condition, request)


def parse_boundary(options: str) -> Sequence[Rule]:
    """The rules in the `options` of a token exchange. Raises ValueError for anything that Google would refuse."""
    if len(options) > BOUNDARY_CHARS_MAX:
        raise ValueError("the boundary is too long")
    found = [_rule(rule) for rule in json.loads(options)["accessBoundary"]["accessBoundaryRules"]]
    if not 0 < len(found) <= RULES_MAX:
        raise ValueError("a boundary has 1 to 10 rules")
    return found


def is_allowed(rules: Sequence[Rule], request: Request) -> bool:
    return any(rule.allows(request) for rule in rules)


def evaluate(expression: str, request: Request) -> bool:
    """The value of a condition. Raises NotAnExpression."""
    reader = _Reader(expression, request)
    value = reader.alternatives()
    reader.expect("end", "")
    return value


def _rule(rule: Mapping[str, object]) -> Rule:
    resource, permissions, condition = (
        rule[key] for key in ("availableResource", "availablePermissions", "availabilityCondition")
    )
    if not isinstance(resource, str) or not isinstance(permissions, list) or not isinstance(condition, dict):
        raise ValueError("a rule has a resource, permissions and a condition")  # noqa: TRY004 - Google's word is: invalid
    roles = [ROLES[permission.removeprefix("inRole:")] for permission in permissions]
    expression = condition["expression"]
    try:
        evaluate(expression, Request("storage.objects.get", resource))
    except NotAnExpression as error:
        raise ValueError(f"the condition is not an expression: {error}") from error
    return Rule(resource, frozenset().union(*roles), expression)


class _Reader:
    """Reads an expression from left to right and evaluates it. Both sides of an operator are always read."""

    def __init__(self, expression: str, request: Request) -> None:
        self._request = request
        self._lexemes: list[tuple[str, str]] = []
        position = 0
        while position < len(expression.rstrip()):
            found = _LEXEME.match(expression, position)
            if not found or not found.lastgroup:
                raise NotAnExpression(expression[position:])
            self._lexemes.append((found.lastgroup, found[found.lastgroup]))
            position = found.end()
        self._lexemes.append(("end", ""))

    def alternatives(self) -> bool:
        value = self._conditions()
        while self._take("mark", "||"):
            value = self._conditions() or value
        return value

    def _conditions(self) -> bool:
        value = self._condition()
        while self._take("mark", "&&"):
            value = self._condition() and value
        return value

    def _condition(self) -> bool:
        if self._take("mark", "!"):
            return not self._condition()
        if self._take("mark", "("):
            value = self.alternatives()
            self.expect("mark", ")")
            return value
        if self._take("name", "true"):
            return True
        subject = self._subject()
        self._call("startsWith")
        start = self._text()
        self.expect("mark", ")")
        return subject.startswith(start)

    def _subject(self) -> str:
        if self._take("name", "resource"):
            self.expect("mark", ".")
            self.expect("name", "name")
            return self._request.resource
        self.expect("name", "api")
        self._call("getAttribute")
        attribute = self._text()
        self.expect("mark", ",")
        default = self._text()
        self.expect("mark", ")")
        is_listing = self._request.permission == "storage.objects.list"
        return self._request.list_prefix if attribute == LIST_PREFIX and is_listing else default

    def _call(self, name: str) -> None:
        self.expect("mark", ".")
        self.expect("name", name)
        self.expect("mark", "(")

    def _text(self) -> str:
        kind, text = self._lexemes.pop(0)
        if kind != "text":
            raise NotAnExpression(text)
        return _ESCAPE.sub(r"\1", text[1:-1])

    def _take(self, kind: str, text: str) -> bool:
        is_next = self._lexemes[0] == (kind, text)
        if is_next:
            self._lexemes.pop(0)
        return is_next

    def expect(self, kind: str, text: str) -> None:
        if not self._take(kind, text):
            raise NotAnExpression(f"expected {text!r}, found {self._lexemes[0][1]!r}")

"""An evaluator of IAM policies, written from AWS's description of them and independent of the code under test."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any


def allows(policy: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """Whether a policy allows an action on a resource. Nothing is allowed that no statement allows; a denial wins."""
    document = _parsed(policy)
    assert document["Version"] == "2012-10-17"
    effects = {
        statement["Effect"]
        for statement in document["Statement"]
        if _applies(statement, action, resource, context or {})
    }
    return effects == {"Allow"}


@functools.lru_cache(10)
def _parsed(policy: str) -> Any:
    return json.loads(policy)


def _applies(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    assert set(statement) <= {"Effect", "Action", "Resource", "Condition", "Sid"}
    return (
        any(_matches(one.lower(), action.lower()) for one in _listed(statement["Action"]))
        and any(_matches(one, resource) for one in _listed(statement["Resource"]))
        and all(
            _is_met(operator, key, _listed(values), context)
            for operator, wanted in statement.get("Condition", {}).items()
            for key, values in wanted.items()
        )
    )


def _is_met(operator: str, key: str, values: Sequence[str], context: Mapping[str, str]) -> bool:
    """A key that the request does not have meets no condition."""
    assert operator == "StringLike"
    found = context.get(key)
    return found is not None and any(_matches(one, found) for one in values)


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@functools.lru_cache(1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    """`*` is any text, `?` any character, and `${*}`, `${?}`, `${$}` are these characters themselves."""
    found = ""
    place = 0
    while place < len(pattern):
        if pattern.startswith("${", place):
            variable, closed, _ = pattern[place + 2 :].partition("}")
            assert closed, "a variable without an end"
            # Any other variable stands for a text that the caller chooses: as dangerous as a star.
            found += re.escape(variable) if variable in {"*", "?", "$"} else ".*"
            place += len(variable) + 3
            continue
        found += {"*": ".*", "?": "."}.get(pattern[place], re.escape(pattern[place]))
        place += 1
    return re.compile(found, re.DOTALL)

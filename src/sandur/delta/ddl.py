"""Columns as SQL spells them, `id BIGINT NOT NULL COMMENT 'key', tags ARRAY<STRING>`, as fields of a Delta schema."""

import re
from typing import Final

from sandur.delta import types
from sandur.errors import Invalid

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_0-9][\w$]*|[<>(),:])")
_NUMBERS_MAX: Final = 2


def parse_columns(text: str) -> list[dict[str, object]]:
    """The fields, in the log's spelling; Invalid with the place where the text is no list of columns."""
    reader = _Reader(text)
    fields = reader.fields(end=None)
    if not fields:
        raise Invalid("no columns are given")
    return types.fields_from_api(fields, "columns")


class _Reader:
    """Reads tokens from left to right; nothing is read twice."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def fields(self, *, end: str | None) -> list[dict[str, object]]:
        fields: list[dict[str, object]] = []
        while self._peek() not in {end, None}:
            fields.append(self._field(separator=":" if end else None))
            if self._peek() == ",":
                self._next()
            elif self._peek() != end:
                raise self._unexpected()
        return fields

    def _field(self, *, separator: str | None) -> dict[str, object]:
        name = self._name()
        if separator and self._peek() == separator:
            self._next()
        field: dict[str, object] = {"name": name, "type": self._type(), "nullable": True, "metadata": {}}
        if self._is_word("NOT"):
            self._next()
            self._expect_word("NULL")
            field["nullable"] = False
        if self._is_word("COMMENT"):
            self._next()
            field["metadata"] = {"comment": self._string()}
        return field

    def _type(self) -> object:
        self._depth += 1
        if self._depth > types.DEPTH_MAX:
            raise Invalid(f"types may not be nested deeper than {types.DEPTH_MAX}")
        word = self._next().lower()
        kind: object
        if word == "array":
            self._expect("<")
            kind = {"type": "array", "elementType": self._type(), "containsNull": True}
            self._expect(">")
        elif word == "map":
            kind = self._map()
        elif word == "struct":
            self._expect("<")
            kind = {"type": "struct", "fields": self.fields(end=">")}
            self._expect(">")
        else:
            kind = self._named(word)
        self._depth -= 1
        return kind

    def _map(self) -> object:
        self._expect("<")
        key = self._type()
        self._expect(",")
        value = self._type()
        self._expect(">")
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}

    def _named(self, word: str) -> str:
        numbers: list[str] = []
        if self._peek() == "(":
            self._next()
            while self._peek() not in {")", None} and len(numbers) < _NUMBERS_MAX:
                numbers.append(self._next())
                if self._peek() == ",":
                    self._next()
            self._expect(")")
        name = types.named_type(word)
        if name == "decimal":
            precision, scale = (*numbers, "10", "0")[:2] if len(numbers) != 1 else (numbers[0], "0")
            return f"decimal({precision},{scale})"
        if word in {"char", "varchar"} and len(numbers) == 1:
            return "string"  # Delta keeps both as strings.
        if numbers:
            raise Invalid(f"the type {word} takes no numbers")
        return name

    def _name(self) -> str:
        token = self._next()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not (token[0].isalnum() or token[0] == "_"):
            raise self._unexpected(token)
        return token

    def _string(self) -> str:
        token = self._next()
        if token[0] not in "'\"":
            raise self._unexpected(token)
        return re.sub(r"\\(.)", r"\1", token[1:-1])

    def _is_word(self, word: str) -> bool:
        return (self._peek() or "").upper() == word

    def _expect_word(self, word: str) -> None:
        if not self._is_word(word):
            raise self._unexpected()
        self._next()

    def _expect(self, symbol: str) -> None:
        if self._peek() != symbol:
            raise self._unexpected()
        self._next()

    def _peek(self) -> str | None:
        found = _TOKEN.match(self._text, self._at)
        if found:
            return found[1]
        if self._text[self._at :].strip():
            raise Invalid(f"columns: unexpected {self._text[self._at :].strip()[:20]!r}")
        return None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise Invalid("columns: the text ends where more was expected")
        found = _TOKEN.match(self._text, self._at)
        self._at = found.end() if found else len(self._text)
        return token

    def _unexpected(self, token: str | None = None) -> Invalid:
        return Invalid(f"columns: unexpected {token or self._peek() or 'end'!r} before {self._text[self._at :][:20]!r}")

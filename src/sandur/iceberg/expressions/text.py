"""Filters as people write them: a small part of SQL, made into the JSON that clients send."""

import re
from typing import Final

from sandur.errors import BadRequest
from sandur.iceberg.expressions.values import Json
from sandur.splicing import shorten

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")*"|`[^`]*`) |
        (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?) |
        (?P<word>[A-Za-z_][A-Za-z0-9_.]*) | (?P<sign><>|!=|<=|>=|<|>|=|\(|\)|,)
    )""",
    re.VERBOSE,
)
_OPERATORS: Final = {"=": "eq", "!=": "not-eq", "<>": "not-eq", "<": "lt", "<=": "lt-eq", ">": "gt", ">=": "gt-eq"}
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "like", "null", "nan", "true", "false"})
_DEPTH_MAX: Final = 100
_END: Final = ("end", "")


def filter_of_text(text: str) -> Json:
    """The filter as JSON; BadRequest that says where it cannot be read."""
    reading = _Reading(_tokens(text), text)
    found = reading.either(0)
    reading.expect("end", "the end")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise BadRequest(f"filter {shorten(text)}: cannot be read at {shorten(text[place:])}")
        kind, word = match.lastgroup, match[match.lastgroup]
        found.append((word.lower(), "") if kind == "word" and word.lower() in _WORDS else (kind, word))
        place = match.end()
    return [*found, _END]


class _Reading:
    """A place in the tokens that moves on."""

    def __init__(self, tokens: list[tuple[str, str]], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._place = 0

    def either(self, depth: int) -> Json:
        found = self._both(depth)
        while self._takes("or"):
            found = {"type": "or", "left": found, "right": self._both(depth)}
        return found

    def _both(self, depth: int) -> Json:
        found = self._negated(depth)
        while self._takes("and"):
            found = {"type": "and", "left": found, "right": self._negated(depth)}
        return found

    def _negated(self, depth: int) -> Json:
        if depth > _DEPTH_MAX:
            raise BadRequest(f"filter: nested more than {_DEPTH_MAX} levels deep")
        if self._takes("not"):
            return {"type": "not", "child": self._negated(depth + 1)}
        if self._takes("sign", "("):
            found = self.either(depth + 1)
            self.expect("sign", "a closing bracket", ")")
            return found
        if self._takes("true"):
            return True
        return False if self._takes("false") else self._test()

    def _test(self) -> Json:
        term = self._column()
        if self._takes("is"):
            prefix = "not-" if self._takes("not") else "is-"
            if self._takes("nan"):
                return {"type": f"{prefix}nan", "term": term}
            self.expect("null", "NULL or NAN")
            return {"type": f"{prefix}null", "term": term}
        is_negated = self._takes("not")
        if self._takes("in"):
            return {"type": "not-in" if is_negated else "in", "term": term, "values": self._list()}
        if self._takes("like"):
            operator = "not-starts-with" if is_negated else "starts-with"
            return {"type": operator, "term": term, "value": self._prefix()}
        kind, sign = self._next()
        if is_negated or kind != "sign" or sign not in _OPERATORS:
            raise self._refused("a comparison")
        return {"type": _OPERATORS[sign], "term": term, "value": self._literal()}

    def _column(self) -> str:
        kind, word = self._next()
        if kind == "word":
            return word
        if kind == "quoted":
            return word[1:-1].replace('""', '"')
        raise self._refused("a column")

    def _list(self) -> Json:
        self.expect("sign", "an opening bracket", "(")
        values: list[Json] = [self._literal()]
        while self._takes("sign", ","):
            values.append(self._literal())
        self.expect("sign", "a closing bracket", ")")
        return values

    def _prefix(self) -> str:
        kind, word = self._next()
        pattern = word[1:-1].replace("''", "'")
        if kind != "text" or not pattern.endswith("%") or set(pattern[:-1]) & set("%_"):
            raise self._refused("a text that ends in %, such as 'abc%'")
        return pattern[:-1]

    def _literal(self) -> Json:
        kind, word = self._next()
        match kind:
            case "text":
                return word[1:-1].replace("''", "'")
            case "number":
                return float(word) if set(word) & set(".eE") else int(word)
            case "true" | "false":
                return kind == "true"
            case _:
                raise self._refused("a value")

    def _next(self) -> tuple[str, str]:
        found = self._tokens[self._place]
        if found != _END:
            self._place += 1
        return found

    def _takes(self, kind: str, word: str = "") -> bool:
        is_here = self._tokens[self._place] == (kind, word)
        self._place += is_here
        return is_here

    def expect(self, kind: str, what: str, word: str = "") -> None:
        """Move on over what has to come next; BadRequest when it does not."""
        if not self._takes(kind, word) and kind != "end":
            raise self._refused(what)
        if kind == "end" and self._place < len(self._tokens) - 1:
            raise self._refused(what)

    def _refused(self, wanted: str) -> BadRequest:
        kind, word = self._tokens[min(self._place, len(self._tokens) - 1)]
        return BadRequest(f"filter {shorten(self._text)}: expected {wanted} near {shorten(word or kind)}")

"""Routes: from a method and a raw path to the handler of an operation."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar


class Routable(Protocol):
    """What a tree has to know of a route."""

    @property
    def method(self) -> str: ...


R = TypeVar("R", bound=Routable)


class Found(NamedTuple, Generic[R]):
    """A path that is served: the routes by method, and the encoded values of its parameters in their order."""

    routes: dict[str, R]
    values: dict[str, bytes]


class _Node(Generic[R]):
    __slots__ = ("literals", "parameter", "parameter_name", "routes")

    def __init__(self) -> None:
        self.literals: dict[bytes, _Node[R]] = {}
        self.parameter: _Node[R] | None = None
        self.parameter_name = ""
        self.routes: dict[str, R] = {}

    def child(self, segment: str) -> "_Node[R]":
        if not segment.startswith("{"):
            return self.literals.setdefault(segment.encode(), _Node())
        if self.parameter is None:
            self.parameter = _Node()
            self.parameter_name = segment.strip("{}")
        return self.parameter


class RouteTree(Generic[R]):
    """Routes by their segments; a word stands before a parameter when both fit."""

    def __init__(self) -> None:
        self._root: _Node[R] = _Node()

    def plant(self, segments: Sequence[str], route: R) -> None:
        node = self._root
        for segment in segments:
            node = node.child(segment)
        node.routes[route.method] = route

    def walk(self, segments: Sequence[bytes], values: dict[str, bytes]) -> Found[R] | None:
        """What is served at a path, its parameters added to `values`; None when nothing is."""
        node = self._root
        for segment in segments:
            following = node.literals.get(segment)
            if following is None:
                if node.parameter is None or not segment:
                    return None
                values[node.parameter_name] = segment
                following = node.parameter
            node = following
        return Found(node.routes, values) if node.routes else None

"""The rules of the protocols that can be left out of a model, to see what each is for."""

from collections.abc import Iterable
from typing import Final, TypeAlias

Rules: TypeAlias = frozenset[str]

RULES: Final = {
    "C3": "a metadata file's name is unique per attempt; nobody adopts another attempt's file",
    "C4": "the claim keeps every location tried, not the latest",
    "C5": "before the pointer moves past a file its receipt exists; recovery asks for it after the pointer",
    "C7": "a further attempt swaps the claim before it swaps the pointer, and gives way when that is lost",
    "C8": "a takeover reads the pointer after it has swapped the claim, not before",
    "C9": "without a key the file name carries the request's hash, looked for when a requirement fails",
    "GC1": "a file that could still be swapped in is deleted only after the pointer's version was swapped on",
}


def without(*left_out: str, of: Iterable[str] = RULES) -> Rules:
    """The rules `of` a protocol but for some; every name must be one of them."""
    known = frozenset(of)
    if not known.issuperset(left_out):
        raise ValueError(f"rules {sorted(known)}: cannot leave out {sorted(set(left_out) - known)}")
    return known - frozenset(left_out)

"""Storage calls and their answers in words, for traces."""

from collections.abc import Hashable

from proof.steps import ABSENT, Call, Delete, Get, Keys, Listing, Put, Read, Single, Write


def describe_value(value: Hashable) -> str:
    if isinstance(value, tuple):
        inside = ", ".join(describe_value(part) for part in value)
        kind = type(value).__name__.lower() if hasattr(value, "_fields") else ""
        return f"{kind}({inside})"
    return str(value)


def describe_call(call: Call) -> str:
    match call:
        case Get(key):
            return f"get {key}"
        case Keys(prefix):
            return f"list {prefix}"
        case Put(key, value, expected):
            return f"put {key} = {describe_value(value)} if {'absent' if expected == ABSENT else f'v{expected}'}"
        case Delete(key, expected):
            return f"delete {key} if v{expected}"


def describe_answer(call: Call, answer: Single) -> str:
    match answer:
        case Read(version, value):
            return "absent" if version == ABSENT else f"v{version} {describe_value(value)}"
        case Listing(keys):
            return f"[{', '.join(keys)}]"
        case Write("ok", version) if isinstance(call, Put):
            return f"ok v{version}"
        case Write(outcome, _):
            return outcome

"""Object bodies that show whether they are complete: a number, a hash, and a random number of bytes."""

import hashlib


def body_of(number: int, payload: bytes) -> bytes:
    return b"%d %s %s" % (number, hashlib.sha256(payload).hexdigest().encode(), payload)


def number_in(body: bytes) -> int:
    """The number in the body; AssertionError if the body is torn."""
    number, digest, payload = body.split(b" ", 2)
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise AssertionError(f"body {number!r}: torn, {len(payload)} bytes do not match their hash")
    return int(number)

"""Object bodies that show whether they are whole: a number, a hash, and as many bytes as chance gave."""

import hashlib


def body_of(number: int, payload: bytes) -> bytes:
    return b"%d %s %s" % (number, hashlib.sha256(payload).hexdigest().encode(), payload)


def number_in(body: bytes) -> int:
    """The number in the body; AssertionError when the body is torn."""
    number, digest, payload = body.split(b" ", 2)
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise AssertionError(f"body {number!r}: torn, {len(payload)} bytes do not match their hash")
    return int(number)

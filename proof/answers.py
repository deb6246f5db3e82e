"""What a request answers, in the words of HTTP and with what each number means to the caller."""

from typing import Final

OK: Final = "ok"
INVALID: Final = "400 invalid"
NO_TABLE: Final = "404 no table"
NO_NAMESPACE: Final = "404 no namespace"
CONFLICT: Final = "409 conflict"
NOT_EMPTY: Final = "409 not empty"
THROTTLED: Final = "429 throttled"
UNKNOWN: Final = "500 unknown"
BUSY: Final = "503 busy"
SWEPT: Final = "swept"

# Not a promise about anything: the request may have happened, may yet happen, or may never happen (G2).
UNSURE: Final = frozenset((None, UNKNOWN, BUSY))
# A promise for ever: the request was not applied, now and later (G3).
REFUSED: Final = frozenset((INVALID, NO_TABLE, NO_NAMESPACE, CONFLICT, NOT_EMPTY))

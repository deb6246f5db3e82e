"""A limit for failed logins, per client and address, in bounded memory."""

from typing import Final

from sandur.operations.lake import Lake, LruCache

FAILURES_MAX: Final = 10
WINDOW_MS: Final = 60_000
_CLIENTS_MAX: Final = 10_000

Who = tuple[str, str]
"""The id of a client and the address that it connects from: a stranger cannot lock a client out from elsewhere."""


class FailureLimit:
    """Counts the failed logins of a workspace in this process, in windows of one minute."""

    def __init__(self, lake: Lake) -> None:
        self._clock = lake.clock
        self._windows: LruCache[Who, tuple[int, int]] = LruCache(_CLIENTS_MAX)

    def wait_seconds(self, who: Who) -> int:
        """How long the client must wait before its next try; 0 if it may try now."""
        ends_ms, count = self._windows.get(who, (0, 0))
        left_ms = ends_ms - self._clock.now_ms()
        return -(-left_ms // 1_000) if left_ms > 0 and count >= FAILURES_MAX else 0

    def note(self, who: Who) -> None:
        """Count a failure."""
        ends_ms, count = self._windows.get(who, (0, 0))
        now_ms = self._clock.now_ms()
        self._windows[who] = (ends_ms, count + 1) if ends_ms > now_ms else (now_ms + WINDOW_MS, 1)

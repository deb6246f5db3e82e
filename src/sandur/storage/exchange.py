"""Two files that change places in one step, where the system can do that."""

import ctypes
import os
import sys
from typing import Final

_CURRENT_FOLDER: Final = -100
_EXCHANGE: Final = 2

_renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None


def exchanged(first: str, second: str) -> bool:
    """Whether the files have changed places; if not, whatever the reason, nothing has happened.

    A rename over a file that exists makes ext4 write the new one out at once, synced or not. An exchange does not.
    """
    if _renameat2 is None:
        return False
    answer = _renameat2(_CURRENT_FOLDER, os.fsencode(first), _CURRENT_FOLDER, os.fsencode(second), _EXCHANGE)
    return bool(answer == 0)

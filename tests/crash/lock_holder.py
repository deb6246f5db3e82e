"""A process that takes the lock of a key in a local store and holds it until it is killed."""

import os
import signal
import sys

from sandur.storage.local import LocalStore

if __name__ == "__main__":
    folder, key = sys.argv[1:]
    with LocalStore(folder)._locked(key):
        os.write(1, b"held\n")
        signal.pause()

"""One class of the kit in one mode, on a fresh server."""

import tempfile
from pathlib import Path

from tests.rck.kit import CLASSES, MODES, WAREHOUSE, Verdict, judged, run
from tests.server.process import server_process


def verdict_on(mode: str, name: str) -> Verdict:
    """Run the class on a fresh server, because the kit expects no leftover namespaces."""
    # The kit creates tables and views at fixed paths below /tmp.
    beside = ("--allow-location", "file:/tmp")
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder), *beside, default_catalog=WAREHOUSE, fsync="never") as server,
    ):
        return judged(run(CLASSES[name], server.url, MODES[mode]), mode)

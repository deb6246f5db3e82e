"""One class of the kit in one mode, on a fresh server."""

import tempfile
from pathlib import Path

from tests.rck.kit import CLASSES, MODES, WAREHOUSE, Verdict, judged, run
from tests.server.process import server_process


def verdict_on(mode: str, name: str) -> Verdict:
    """What the class makes of a server of its own: the kit wants its namespaces gone."""
    # The kit asks for tables and views below /tmp by name.
    beside = ("--allow-location", "file:/tmp")
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder), *beside, default_catalog=WAREHOUSE, fsync="never") as server,
    ):
        return judged(run(CLASSES[name], server.url, MODES[mode]), mode)

"""Commands of one user, whose profiles lie in a folder of the test."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from sandur.cli.main import app, exit_code
from sandur.errors import SandurError

ROOT = Path(__file__).parents[2]
# A shell that starts the tests in the background has SIGINT ignored, which processes inherit.
_START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from sandur.cli.main import run; run()"
)


class Done(NamedTuple):
    """A command that has ended: its exit code, its results, and its messages with the error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class User:
    """Runs commands as a user whose configuration is in the folder."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.folder = home / "sandur"
        self.environment = {"XDG_CONFIG_HOME": str(home), **environment}

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """A command in this process, which is faster than one of its own."""
        result = CliRunner().invoke(app, arguments, input=stdin, env=self.environment)
        error = result.exception
        if isinstance(error, SandurError):
            return Done(exit_code(error), result.stdout, f"{result.stderr}sandur: {error}\n")
        if error and not isinstance(error, SystemExit):
            raise error
        return Done(result.exit_code, result.stdout, result.stderr)

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """A command in its own process."""
        command = [sys.executable, "-c", _START, *arguments]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def credentials(self) -> Any:
        return json.loads((self.folder / "credentials.json").read_text())

    def change_credentials(self, profile: str, **changes: object) -> None:
        path = self.folder / "credentials.json"
        held = self.credentials()
        held[profile].update(changes)
        path.write_text(json.dumps(held))


def ended(process: "subprocess.Popen[str]") -> Done:
    out, err = process.communicate(timeout=120)
    return Done(process.returncode, out, err)

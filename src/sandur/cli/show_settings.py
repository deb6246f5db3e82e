"""`sandur settings`: what is set, to what, and how it is spelled in the environment."""

import json
import os
from operator import attrgetter
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from sandur.settings import ENVIRONMENT_PREFIX, load_settings, setting_keys

_SECRETS: Final = ("secret_access_key", "session_token", "account_key", "sas_token", "bearer_token", "token")


def show_settings(*, store: str | None, config: Path | None, as_json: bool) -> None:
    settings = load_settings(file=config, environment=os.environ, flags={"store": store})
    values = {key: _shown(key, attrgetter(key)(settings)) for key in setting_keys()}
    if as_json:
        print(json.dumps(values, indent=2))  # noqa: T201 - output for machines
        return
    table = Table("setting", "value", "environment", title="Settings")
    for key, value in values.items():
        table.add_row(key, str(value), ENVIRONMENT_PREFIX + key.replace(".", "_").upper())
    Console().print(table)


def _shown(key: str, value: object) -> object:
    return "(hidden)" if value and key.endswith(_SECRETS) else value

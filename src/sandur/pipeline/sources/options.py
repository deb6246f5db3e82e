"""How a data source is told which store to open, on the driver and in every executor alike."""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from sandur.errors import BadRequest
from sandur.pipeline.waiting import OpenStore
from sandur.settings import Settings, load_settings, setting_keys
from sandur.storage.layout import Layout

_DEFAULTS: Final = Settings()


def source_options(settings: Settings, layout: Layout) -> dict[str, str]:
    """The settings that differ from the defaults, as options: named as the settings are, so that secrets are redacted
    by Spark like everybody's.
    """
    told = {key: value for key in setting_keys() if (value := _of(settings, key)) != _of(_DEFAULTS, key)}
    told |= {"store": settings.store, "tenant": layout.tenant, "workspace": layout.workspace}
    return {key: value if isinstance(value, str) else _text(value) for key, value in told.items()}


def open_store_of(options: Mapping[str, str]) -> OpenStore:
    """The store that the options name; what they leave out comes from the environment. BadRequest without `store`."""
    known = setting_keys()
    flags = {key: value for key, value in options.items() if key in known}
    settings = load_settings(environment=os.environ, flags=flags)
    if "store" not in flags and "SANDUR_STORE" not in os.environ:
        raise BadRequest("option store: a folder, file://, s3://, gs:// or az:// is expected, none was given")
    return OpenStore(settings, Layout(settings.tenant or "default", settings.workspace or "default"))


def _of(settings: Settings, key: str) -> object:
    section, _, name = key.rpartition(".")
    return getattr(getattr(settings, section) if section else settings, name)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return msgspec.json.encode(value).decode()

"""Profiles: the servers that a user knows, in `config.toml`, and the tokens for them, in `credentials.json`.

Both files lie in `~/.config/sandur`. The tokens are readable by their owner alone. Each write replaces the whole file.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets  # noqa: TID251 - a name that no other command uses
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.errors import BadRequest, NotFound, Unavailable

DEFAULT: Final = "default"

_CONFIG: Final = "config.toml"
_CREDENTIALS: Final = "credentials.json"
_LOCK: Final = ".lock"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_HEAD: Final = "# Profiles of the command `sandur`, which rewrites this file. Tokens are in credentials.json.\n"


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server, how to log in to it, and the tenant and workspace of requests; empty ones are the server's choice."""

    server: str
    issuer: str = ""
    client_id: str = ""
    tenant: str = ""
    workspace: str = ""


class Credentials(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The token of a profile for one server, which no other server gets, and what renews it.

    `issuer` is empty for a program that logged in with its secret. `expires_ms` of 0 is unknown.
    """

    server: str
    access_token: str
    expires_ms: int = 0
    issuer: str = ""
    client_id: str = ""
    audience: str = ""
    refresh_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(server={self.server!r})"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `config.toml`. `current` is the profile of commands that name none."""

    current: str = DEFAULT
    profiles: dict[str, Profile] = {}


class Profiles:
    """The profiles in one folder, which is created by the first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> Config:
        """All profiles; BadRequest if the file is damaged."""
        path = self.folder / _CONFIG
        try:
            return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Config)
        except FileNotFoundError:
            return Config()
        except (OSError, ValueError, msgspec.ValidationError) as error:
            raise BadRequest(f"profiles in {path}: cannot be read: {error}; correct or remove the file") from error

    def credentials(self, name: str) -> Credentials | None:
        """The tokens of a profile; None if it is not logged in."""
        return self._all_credentials().get(name)

    def save(self, name: str, profile: Profile, credentials: Credentials | None) -> None:
        """Store a profile and its tokens. The first profile becomes the current one."""
        check_name(name)
        with self.locked():
            config = self.read()
            self._write_config(
                Config(
                    current=config.current if config.current in config.profiles else name,
                    profiles={**config.profiles, name: profile},
                )
            )
            self.store_credentials(name, credentials)

    def use(self, name: str) -> None:
        """Make a profile the current one."""
        with self.locked():
            config = self.read()
            require_profile(config, name)
            self._write_config(replace(config, current=name))

    def remove(self, name: str) -> None:
        """Remove a profile with its tokens."""
        with self.locked():
            config = self.read()
            require_profile(config, name)
            self.store_credentials(name, None)
            left = {known: profile for known, profile in config.profiles.items() if known != name}
            self._write_config(replace(config, profiles=left))

    def store_credentials(self, name: str, credentials: Credentials | None) -> None:
        """Replace or remove the tokens of a profile; the caller holds the lock."""
        held = dict(self._all_credentials())
        before = held.pop(name, None)
        if credentials:
            held[name] = credentials
        if before != credentials:
            self._write(_CREDENTIALS, msgspec.json.format(msgspec.json.encode(held), indent=2) + b"\n")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, so that two commands do not overwrite each other or use one refresh token twice."""
        try:
            self.folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR)
        except OSError as error:
            raise Unavailable(f"profiles in {self.folder}: cannot be written: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _all_credentials(self) -> Mapping[str, Credentials]:
        path = self.folder / _CREDENTIALS
        try:
            if path.stat().st_mode & _OTHERS:
                raise BadRequest(f"tokens in {path}: other users can access the file; run: chmod 600 {path}")
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Credentials])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise BadRequest(f"tokens in {path}: cannot be read; remove the file and log in again") from error

    def _write_config(self, config: Config) -> None:
        lines = [_HEAD, f"current = {_toml(config.current)}\n"]
        for name, profile in sorted(config.profiles.items()):
            lines.append(f"\n[profiles.{name}]\n")
            lines += [f"{key} = {_toml(value)}\n" for key, value in msgspec.to_builtins(profile).items()]
        self._write(_CONFIG, "".join(lines).encode())

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file by one that only its owner may read; a crash leaves the old or the new one."""
        temporary = self.folder / f".{name}.{secrets.token_hex(8)}"
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
            with os.fdopen(file, "wb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            temporary.replace(self.folder / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise Unavailable(f"{self.folder / name}: cannot be written: {error}") from error


def user_profiles(environment: Mapping[str, str]) -> Profiles:
    """The profiles of the user: in `$XDG_CONFIG_HOME/sandur`, by default `~/.config/sandur`."""
    home = environment.get("XDG_CONFIG_HOME") or ""
    # The specification of the variable has relative paths ignored.
    folder = Path(home) if home.startswith("/") else Path.home() / ".config"
    return Profiles(folder / "sandur")


def require_profile(config: Config, name: str) -> Profile:
    """The profile of that name; raises NotFound."""
    found = config.profiles.get(name)
    if found is None:
        known = f"known profiles: {', '.join(sorted(config.profiles))}" if config.profiles else "there are no profiles"
        raise NotFound(
            f"profile {name} does not exist ({known}); create it with: sandur login --profile {name} --server URL",
            subject="profile",
        )
    return found


def check_name(name: str) -> None:
    if not _NAME.match(name):
        raise BadRequest(f"profile {name[:63]!r}: expected up to 63 letters, digits, - and _")


def _toml(text: str) -> str:
    # A string of JSON is one of TOML, except that TOML also escapes DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

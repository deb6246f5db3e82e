"""`sandur grant`, `grants`, `owner`, `principal`, `group` and `stages`: what an administrator does on a server."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from sandur.catalog.security.privileges import PRIVILEGES, SECURABLE_TYPES, SecurableType
from sandur.cli.flags import ServerFlags
from sandur.cli.login import fetch, run_on_server
from sandur.cli.output import print_json, print_rows, say
from sandur.client.sessions import API, Session
from sandur.errors import BadRequest, NotFound

_STATEMENT: Final = re.compile(
    r"(?P<privileges>.+?)\s+on\s+(?P<object>.+?)\s+(?P<word>to|from)\s+(?P<who>.+)\Z", re.IGNORECASE
)
_TYPES: Final[Mapping[str, SecurableType]] = {
    **{one: one for one in SECURABLE_TYPES},
    **{one.replace("_", " "): one for one in SECURABLE_TYPES},
    "namespace": "schema",
    "view": "table",
    "model": "registered_model",
}
_BY_PARTS: Final[Mapping[int, tuple[SecurableType, ...]]] = {1: ("catalog",), 2: ("schema",)}
_INSIDE: Final[tuple[SecurableType, ...]] = ("table", "schema", "volume", "function", "registered_model")
"""What a name of three or more parts may be, in the order in which it is looked for."""

_STAGE_PAGES_MAX: Final = 1_000


class Securable(NamedTuple):
    """An object by its full name; `types` are those that it may have."""

    types: tuple[SecurableType, ...]
    name: str

    @property
    def text(self) -> str:
        return self.name if self.types == ("metastore",) else f"{self.types[0].replace('_', ' ')} {self.name}"


class Statement(NamedTuple):
    """`PRIVILEGE, … on [TYPE] NAME to WHO`."""

    privileges: tuple[str, ...]
    securable: Securable
    who: str


def parse_statement(words: Sequence[str], link: str) -> Statement:
    """The statement of a command line; `link` is the word before the principal. Raises BadRequest."""
    command = "grant" if link == "to" else "revoke"
    found = _STATEMENT.match(" ".join(words).strip())
    if found is None or found["word"].lower() != link:
        raise BadRequest(
            f"expected: sandur {command} PRIVILEGE on NAME {link} WHO, such as: "
            f"sandur {command} SELECT on main.sales {link} analysts"
        )
    privileges = tuple(" ".join(one.upper().replace("_", " ").split()) for one in found["privileges"].split(","))
    for privilege in privileges:
        if privilege not in PRIVILEGES:
            raise BadRequest(f"privilege {privilege!r} does not exist; the privileges are: {', '.join(PRIVILEGES)}")
    return Statement(privileges, parse_securable(found["object"]), found["who"].strip())


def parse_securable(text: str) -> Securable:
    """`[TYPE] NAME`, or `metastore`. Without a type, the number of parts says what it may be."""
    name = text.strip()
    if name.lower() == "metastore":
        return Securable(("metastore",), "metastore")
    for word, type_ in _TYPES.items():
        if name.lower().startswith(f"{word} "):
            return Securable((type_,), name[len(word) :].strip())
    if not name or " " in name:
        raise BadRequest(f"{text!r}: expected NAME, or TYPE NAME with one of the types {', '.join(SECURABLE_TYPES)}")
    return Securable(_BY_PARTS.get(len(name.split(".")), _INSIDE), name)


def grant(words: Sequence[str], flags: ServerFlags) -> None:
    statement = parse_statement(words, "to")
    securable = _change(statement, flags, {"add": statement.privileges})
    if not flags.as_json:
        say(f"Granted {', '.join(statement.privileges)} on {securable.text} to {statement.who}.")


def revoke(words: Sequence[str], flags: ServerFlags, *, is_fenced: bool) -> None:
    statement = parse_statement(words, "from")
    change = {"remove": statement.privileges}
    securable = _change(statement, flags, change, is_fenced=is_fenced)
    if not flags.as_json:
        say(f"Revoked {', '.join(statement.privileges)} on {securable.text} from {statement.who}.")


def _change(
    statement: Statement,
    flags: ServerFlags,
    change: Mapping[str, Sequence[str]],
    *,
    is_fenced: bool = False,
) -> Securable:
    async def update(session: Session) -> tuple[Securable, bytes]:
        securable = await _found(session, statement.securable)
        body = {"changes": [{"principal": statement.who, **change}], "fenced": is_fenced}
        return securable, await session.request("PATCH", _path(securable), body=body)

    securable, answer = run_on_server(update, flags)
    if flags.as_json:
        print_json(msgspec.json.decode(answer))
    return securable


async def _found(session: Session, securable: Securable) -> Securable:
    """The securable with its one type: of several possible types, the first that the server knows."""
    missing: NotFound | None = None
    if len(securable.types) == 1:
        return securable
    for type_ in securable.types:
        one = Securable((type_,), securable.name)
        try:
            await session.request("GET", _path(one))
        except NotFound as error:
            missing = missing or error
        else:
            return one
    raise missing or NotFound(f"{securable.name} does not exist", subject="object")


def _path(securable: Securable) -> str:
    return f"{API}/grants/{_parts(securable)}"


def _parts(securable: Securable) -> str:
    return f"{securable.types[0]}/{quote(securable.name, safe='')}"


def show_grants(name: str, flags: ServerFlags, *, principal: str | None) -> None:
    """Print the grants on an object, or what one principal may do there and why."""
    wanted = parse_securable(name)

    async def load(session: Session) -> dict[str, Any]:
        parts = _parts(await _found(session, wanted))
        if principal:
            return dict(await fetch(session, f"/effective-privileges/{parts}", principal=principal))
        return dict(await fetch(session, f"/grants/{parts}"))

    found = run_on_server(load, flags)
    if flags.as_json:
        print_json(found)
    elif principal:
        rows = [
            [one["privilege"], one["securable_type"], one["full_name"], one["granted_to"]]
            for one in found["privileges"]
        ]
        print_rows(["privilege", "granted on", "name", "granted to"], rows, empty=f"{principal} may do nothing there.")
    else:
        rows = [[one["principal"], ", ".join(one["privileges"])] for one in found["grants"]]
        print_rows(
            ["principal", "privileges"], rows, empty=f"No grants on {found['securable_type']} {found['full_name']}."
        )


def set_owner(words: Sequence[str], flags: ServerFlags) -> None:
    """Give an object, `[TYPE] NAME`, to a principal, group or role, the last word."""
    *name, owner = words
    if not name or not owner.strip():
        raise BadRequest("expected: sandur owner set NAME WHO, such as: sandur owner set main.sales.orders analysts")
    wanted = parse_securable(" ".join(name))

    async def change(session: Session) -> Securable:
        securable = await _found(session, wanted)
        await session.request("PUT", f"{API}/owners/{_parts(securable)}", body={"owner": owner})
        return securable

    securable = run_on_server(change, flags)
    if flags.as_json:
        print_json({"securable_type": securable.types[0], "full_name": securable.name, "owner": owner})
        return
    say(f"{securable.text[0].upper()}{securable.text[1:]} belongs to {owner} now.")


def create_principal(name: str, flags: ServerFlags, *, is_user: bool, is_pipeline: bool, groups: Sequence[str]) -> None:
    kind = "user" if is_user else "service"
    body = {"name": name, "kind": kind, "groups": list(groups), "pipeline": is_pipeline}
    made = run_on_server(lambda session: session.request("POST", f"{API}/principals", body=body), flags)
    _print_secret(msgspec.json.decode(made), f"Created principal {name}.", flags)


def rotate_secret(name: str, flags: ServerFlags, *, lifetime_seconds: int | None) -> None:
    """Print a further secret of a principal; the older of two others ends."""
    body = {"expires_in": lifetime_seconds} if lifetime_seconds else {}
    path = f"{_principal(name)}/secrets"
    made = run_on_server(lambda session: session.request("POST", path, body=body), flags)
    _print_secret(msgspec.json.decode(made), f"{name} has a new secret; its previous one is still valid.", flags)


def _print_secret(made: Mapping[str, Any], text: str, flags: ServerFlags) -> None:
    if flags.as_json:
        print_json(made)
        return
    say(text)
    if secret := made.get("client_secret"):
        say("The secret is not shown again:")
        print_rows(["client id", "client secret"], [[str(made["client_id"]), str(secret)]], empty="")


def show_principals(flags: ServerFlags) -> None:
    found = run_on_server(lambda session: fetch(session, "/principals"), flags)["principals"]
    if flags.as_json:
        print_json(found)
        return
    rows = [
        [one["name"], one["kind"], "disabled" if one.get("disabled") else "enabled", ", ".join(one.get("groups", ()))]
        for one in found
    ]
    print_rows(["principal", "kind", "state", "groups"], rows, empty="No principals.")


def show_stages(flags: ServerFlags) -> None:
    async def fetch_all(session: Session) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        token = ""
        for _ in range(_STAGE_PAGES_MAX):
            page = await fetch(session, f"/stages?page_token={quote(token, safe='')}" if token else "/stages")
            found += page["stages"]
            token = page["next_page_token"]
            if not token:
                break
        return found

    found = run_on_server(fetch_all, flags)
    if flags.as_json:
        print_json(found)
        return
    rows = [
        [
            ".".join((one["catalog_name"], *one["namespace"], one["name"])),
            one["format"],
            one["stage_id"],
            one["created_by"],
            dt.datetime.fromtimestamp(one["expires_at"] / 1_000, dt.UTC).isoformat(timespec="seconds"),
            one["location"],
        ]
        for one in found
    ]
    print_rows(["table", "format", "stage", "by", "expires", "location"], rows, empty="No stages.")


def show_principal(name: str, flags: ServerFlags) -> None:
    found = run_on_server(lambda session: fetch(session, _principal(name).removeprefix(API)), flags)
    if flags.as_json:
        print_json(found)
        return
    found["secrets"] = len(found.get("secrets", ()))
    found["api_keys"] = len(found.get("api_keys", ()))
    found["groups"] = ", ".join(found.get("groups", ()))
    found.pop("created_at", None)
    print_rows(["", ""], [[key.replace("_", " "), str(value)] for key, value in found.items()], empty="")


def drop_principal(name: str, flags: ServerFlags) -> None:
    run_on_server(lambda session: session.request("DELETE", _principal(name)), flags)
    say(f"Dropped principal {name} with its grants.")


def set_disabled(name: str, flags: ServerFlags, *, is_disabled: bool) -> None:
    body = {"disabled": is_disabled}
    run_on_server(lambda session: session.request("PATCH", _principal(name), body=body), flags)
    say(f"Disabled principal {name}; its tokens have ended." if is_disabled else f"Enabled principal {name}.")


def set_pipeline(name: str, flags: ServerFlags, *, is_pipeline: bool) -> None:
    body = {"pipeline": is_pipeline}
    run_on_server(lambda session: session.request("PATCH", _principal(name), body=body), flags)
    say(f"{name} is a pipeline: log in again." if is_pipeline else f"{name} is no longer a pipeline: log in again.")


def create_group(name: str, members: Sequence[str], flags: ServerFlags, *, is_role: bool) -> None:
    kind = "role" if is_role else "group"
    body = {"name": name, "kind": kind, "members": list(members)}
    made = run_on_server(lambda session: session.request("POST", f"{API}/groups", body=body), flags)
    if flags.as_json:
        print_json(msgspec.json.decode(made))
        return
    say(f"Created {kind} {name}.")


def show_groups(flags: ServerFlags) -> None:
    found = run_on_server(lambda session: fetch(session, "/groups"), flags)["groups"]
    if flags.as_json:
        print_json(found)
        return
    rows = [[one["name"], one["kind"], ", ".join(one["members"])] for one in found]
    print_rows(["group", "kind", "members"], rows, empty="No groups.")


def change_members(group: str, flags: ServerFlags, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
    body = {"add": list(add), "remove": list(remove)}
    changed = run_on_server(lambda session: session.request("PATCH", f"{_group(group)}/members", body=body), flags)
    if flags.as_json:
        print_json(msgspec.json.decode(changed))
        return
    say(f"{'Added to' if add else 'Removed from'} group {group}: {', '.join((*add, *remove))}.")


def drop_group(name: str, flags: ServerFlags) -> None:
    run_on_server(lambda session: session.request("DELETE", _group(name)), flags)
    say(f"Dropped group {name} with its grants.")


def _group(name: str) -> str:
    return f"{API}/groups/{quote(name, safe='')}"


def _principal(name: str) -> str:
    return f"{API}/principals/{quote(name, safe='')}"

"""Actions on securables of every type: grants, owner, tags, comment and policy."""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal, assert_never

import msgspec

from sandur.catalog.identifiers import Kind, parse_full_name, parse_schema_name
from sandur.catalog.maintenance.policies import PolicyEdit, edited_policy
from sandur.catalog.records import Request
from sandur.catalog.security.grants import Assignments, GrantChange
from sandur.catalog.security.privileges import PRIVILEGES, READ_GRANTS, Privilege, SecurableType, parse_securable_type
from sandur.errors import BadRequest
from sandur.iceberg import updates as u
from sandur.iceberg.requests import TableCommit
from sandur.iceberg.view_commit import ViewCommit
from sandur.operations import policies
from sandur.operations.containers.catalogs import update_catalog
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.views import commit_view
from sandur.operations.unity import governance, owners
from sandur.operations.unity import grants as operations
from sandur.operations.unity.securables import update_securable
from sandur.server.context import Call
from sandur.server.ui.actions.steps import Action, Change, Field, Preview, Sent, Unchanged
from sandur.server.ui.actions.texts import (
    check_base,
    command_text,
    digest_of,
    parse_properties,
    properties_text,
    property_changes,
    split_list,
)
from sandur.server.ui.links import catalog_link, namespace_link, object_link, page_link
from sandur.server.ui.renderer import Crumb, lake_for
from sandur.server.ui.views.data import container_crumbs
from sandur.splicing import NOT_JSON
from sandur.storage.cell import gather_all

CommentedKind = Literal["catalog", "schema", "table", "view", "volume", "registered_model"]
_KINDS: Final[Mapping[str, Kind]] = {
    "table": "table",
    "volume": "volume",
    "function": "function",
    "registered_model": "model",
}


_USUAL: Final[Mapping[str, str]] = {
    "table": "SELECT, MODIFY, BROWSE, MANAGE",
    "volume": "READ VOLUME, WRITE VOLUME, BROWSE, MANAGE",
    "function": "EXECUTE, BROWSE, MANAGE",
    "registered_model": "EXECUTE, MODIFY, BROWSE, MANAGE",
}
"""The privileges that mean something on an object of each type. Containers pass all of them on."""


def securable_at(call: Call) -> tuple[SecurableType, str]:
    return parse_securable_type(call.value("securable_type")), call.value("full_name")


def _page_of(call: Call, part: str = "") -> str:
    return _link(*securable_at(call), part)


def _link(type_: SecurableType, name: str, part: str = "") -> str:
    """The page of a securable."""
    match type_:
        case "catalog":
            return catalog_link(name)
        case "schema":
            return namespace_link(parse_schema_name(name))
        case "table" | "volume" | "function" | "registered_model":
            return object_link(parse_full_name(name), _KINDS[type_], part)  # That of a view is found from there.
        case _:
            return page_link("/")


def _place(call: Call) -> tuple[Crumb, ...]:
    return _crumbs(*securable_at(call))


def _crumbs(type_: SecurableType, name: str) -> tuple[Crumb, ...]:
    if type_ in _KINDS:
        identifier = parse_full_name(name)
        return (*container_crumbs(identifier.namespace), Crumb(identifier.name, _link(type_, name)))
    return (Crumb("Data", page_link("/")), Crumb(name, _link(type_, name)))


def _name(call: Call) -> str:
    type_, name = securable_at(call)
    return "the workspace" if type_ == "metastore" else name


# Grants


async def _grants(call: Call) -> Assignments:
    """All grants on it. Without the right to change them, its refusal is the answer."""
    _, held = await gather_all(
        (
            governance.load_governance(call.lake, *securable_at(call)),
            operations.load_grants(lake_for(call, READ_GRANTS), *securable_at(call)),
        )
    )
    return held


async def _grant_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    held = await _grants(call)
    usual = _USUAL.get(call.value("securable_type"), ", ".join(PRIVILEGES))
    hint = "The name of a principal, a group or a role, or everyone."
    known = "; ".join(f"{who}: {', '.join(privileges)}" for who, privileges in list(held.items())[:20])
    return (
        Field(name="principal", label="Who", value=sent.get("principal", ""), hint=hint, required=True),
        Field(
            name="add",
            label="Privileges to grant",
            value=sent.get("add", ""),
            hint=f"With commas between them: {usual}",
        ),
        Field(
            name="remove",
            label="Privileges to revoke",
            value=sent.get("remove", ""),
            hint=f"Granted now: {known}" if known else "Nothing is granted on it now.",
        ),
    )


def _privileges(text: str) -> tuple[Privilege, ...]:
    wanted = [part.strip().upper().replace("_", " ") for part in text.split(",") if part.strip()]
    if unknown := [one for one in wanted if one not in PRIVILEGES]:
        raise BadRequest(f"Unknown privilege {unknown[0][:40]!r}. Possible: {', '.join(PRIVILEGES)}")
    return tuple(one for one in PRIVILEGES if one in wanted)


def _grant_change(sent: Sent) -> GrantChange:
    change = GrantChange(
        sent.get("principal", "").strip(), _privileges(sent.get("add", "")), _privileges(sent.get("remove", ""))
    )
    if not change.principal or not (change.add or change.remove):
        raise BadRequest("Say who, and what to grant or to revoke.")
    return change


async def _preview_grant(call: Call, sent: Sent) -> Preview:
    held, change = await _grants(call), _grant_change(sent)
    before = tuple(held.get(change.principal, ()))
    added, removed = set(change.add or ()), set(change.remove or ())
    after = tuple(one for one in PRIVILEGES if (one in before or one in added) and one not in removed)
    type_, name = securable_at(call)
    return Preview(
        sentence=f"What {change.principal} may do to {_name(call)}, by grants on it, changes. It counts at once, "
        "and for everything below it.",
        changes=(Change(change.principal, ", ".join(before), ", ".join(after)),),
        command=_grant_command(added, removed, f"{type_} {name}", change.principal),
        is_possible=set(after) != set(before),
    )


def _grant_command(added: Iterable[str], removed: Iterable[str], securable: str, who: str) -> str:
    """The commands that grant and revoke the same."""
    steps = (("grant", sorted(added), "to"), ("revoke", sorted(removed), "from"))
    return "\n".join(command_text(verb, ", ".join(some), "on", securable, to, who) for verb, some, to in steps if some)


async def _grant(call: Call, sent: Sent, request: Request) -> str:
    await operations.update_grants(call.lake, *securable_at(call), (_grant_change(sent),), request)
    return _page_of(call, "grants" if securable_at(call)[0] in _KINDS else "")


GRANT: Final = Action(
    title=lambda call: f"Grants on {_name(call)}",
    verb="Change the grants",
    done="granted",
    place=_place,
    fields=_grant_fields,
    preview=_preview_grant,
    apply=_grant,
)


# Owner


async def _owner_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    now = await governance.load_governance(call.lake, *securable_at(call))
    hint = f"A principal, a group or a role. Owner now: {now.owner or 'none'}."
    return (Field(name="owner", label="New owner", value=sent.get("owner", ""), hint=hint, required=True),)


async def _preview_owner(call: Call, sent: Sent) -> Preview:
    now = await governance.load_governance(call.lake, *securable_at(call))
    owner = sent.get("owner", "").strip()
    if not owner or owner == now.owner:
        raise BadRequest("The new owner is missing, or owns it already.")
    return Preview(
        sentence=f"{_name(call)} gets a new owner, who may manage it, drop it and grant privileges on it.",
        changes=(Change("owner", now.owner or "", owner),),
        warning="The old owner loses these rights, unless a grant or an owner above gives them.",
        kept={"base": now.owner or ""},
    )


async def _change_owner(call: Call, sent: Sent, request: Request) -> str:
    now = await governance.load_governance(call.lake, *securable_at(call))
    check_base(sent, now.owner or "", "The owner")
    await owners.change_owner(call.lake, *securable_at(call), sent.get("owner", "").strip(), request)
    return _page_of(call)


OWNER: Final = Action(
    title=lambda call: f"Owner of {_name(call)}",
    verb="Change the owner",
    done="owned",
    place=_place,
    fields=_owner_fields,
    preview=_preview_owner,
    apply=_change_owner,
)


# Tags


async def _tags(call: Call, sent: Sent) -> Mapping[str, str]:
    now = await governance.load_governance(call.lake, *securable_at(call))
    column = sent.get("column", "").strip()
    return now.column_tags.get(column, {}) if column else now.tags


async def _tag_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    now = await _tags(call, sent)
    return (
        Field(
            name="tags",
            label="Tags",
            kind="area",
            value=sent.get("tags", properties_text(now)),
            hint="One line for each: name = value. A line that you remove removes the tag.",
        ),
        Field(name="column", label="Of the column", value=sent.get("column", ""), hint="Empty: of the whole object."),
        Field(name="base", label="", kind="hidden", value=digest_of(now)),
    )


async def _changed_tags(call: Call, sent: Sent) -> tuple[Change, ...]:
    before = await _tags(call, sent)
    changes = property_changes(before, parse_properties(sent.get("tags", "")))
    if not changes:
        raise Unchanged("Nothing changes: the tags are already like this.")
    if not sent.get("column"):
        check_base(sent, digest_of(before), "The tags")
    return changes


async def _preview_tags(call: Call, sent: Sent) -> Preview:
    return Preview(sentence=f"The tags of {_name(call)} change.", changes=await _changed_tags(call, sent))


async def _change_tags(call: Call, sent: Sent, request: Request) -> str:
    changes, after = await _changed_tags(call, sent), parse_properties(sent.get("tags", ""))
    await governance.change_tags(
        call.lake,
        *securable_at(call),
        request,
        set_={one.what: after[one.what] for one in changes if one.what in after},
        remove=[one.what for one in changes if one.what not in after],
        column=sent.get("column", "").strip() or None,
    )
    return _page_of(call)


TAGS: Final = Action(
    title=lambda call: f"Tags of {_name(call)}",
    verb="Change the tags",
    done="tagged",
    place=_place,
    fields=_tag_fields,
    preview=_preview_tags,
    apply=_change_tags,
)


# Comment


def _commented(kind: CommentedKind, call: Call) -> tuple[SecurableType, str]:
    return "table" if kind == "view" else kind, call.value("full_name")


async def _comment_now(kind: CommentedKind, call: Call) -> str:
    """The comment; what the route declares is decided first."""
    return (await governance.load_governance(call.lake, *_commented(kind, call))).comment or ""


async def _comment_fields(kind: CommentedKind, call: Call, sent: Sent) -> tuple[Field, ...]:
    now = await _comment_now(kind, call)
    return (
        Field(name="comment", label="Comment", kind="area", value=sent.get("comment", now)),
        Field(name="base", label="", kind="hidden", value=digest_of(now)),
    )


async def _preview_comment(kind: CommentedKind, call: Call, sent: Sent) -> Preview:
    now, after = await _comment_now(kind, call), _comment(sent)
    check_base(sent, digest_of(now), "The comment")
    if after == now:
        raise BadRequest("Nothing changes: the comment is already like this.")
    sentence = f"The comment on {call.value('full_name')} changes."
    return Preview(sentence=sentence, changes=(Change("comment", now, after),))


def _comment(sent: Sent) -> str:
    return sent.get("comment", "").strip().replace("\r\n", "\n")


async def _change_comment(kind: CommentedKind, call: Call, sent: Sent, request: Request) -> str:
    name, comment = call.value("full_name"), _comment(sent)
    set_ = u.SetProperties(updates={"comment": comment}) if comment else u.RemoveProperties(removals=("comment",))
    match kind:
        case "catalog":
            await update_catalog(call.lake, name, comment=comment, properties=None, request=request)
            return catalog_link(name)
        case "schema":
            removals, updates = (() if comment else ("comment",)), ({"comment": comment} if comment else {})
            namespace = parse_schema_name(name)
            await update_namespace_properties(call.lake, namespace, removals=removals, updates=updates, request=request)
            return namespace_link(namespace)
        case "view":
            await commit_view(call.lake, parse_full_name(name), ViewCommit((), (set_,)), request)
        case "table":
            await commit_table(call.lake, parse_full_name(name), TableCommit((), (set_,)), request)
        case "volume" | "registered_model":
            identifier = parse_full_name(name)
            await update_securable(call.lake, identifier, _KINDS[kind], comment=comment, new_name=None, request=request)
        case _:
            assert_never(kind)
    return object_link(parse_full_name(name), "view" if kind == "view" else _KINDS[kind])


def _comment_place(kind: CommentedKind, call: Call) -> tuple[Crumb, ...]:
    return _crumbs("table" if kind == "view" else kind, call.value("full_name"))


def comment_action(kind: CommentedKind) -> Action:
    return Action(
        title=lambda call: f"Comment on {call.value('full_name')}",
        verb="Change the comment",
        done="commented",
        place=partial(_comment_place, kind),
        fields=partial(_comment_fields, kind),
        preview=partial(_preview_comment, kind),
        apply=partial(_change_comment, kind),
    )


# Policy


async def _policy_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    found = await policies.load_policy(call.lake, *securable_at(call))
    own = dict(_flat(found.values))
    given = [one for one in found.merged.origins if one.origin != "default"]
    merged = "; ".join(f"{one.field} = {json.dumps(one.value)} ({one.origin})" for one in given)
    in_effect = f"In effect besides the defaults: {merged}." if given else "All fields have their defaults now."
    return (
        Field(
            name="values",
            label="Fields of this scope",
            kind="area",
            value=sent.get("values", properties_text({key: json.dumps(value) for key, value in own.items()})),
            hint='One line for each, such as snapshots.max_age = "P7D" or mode = "run". A field that is not here '
            "comes from the scope above.",
        ),
        Field(
            name="locked",
            label="Locked fields",
            value=sent.get("locked", ", ".join(found.locked)),
            hint=f"Names, with commas. Scopes below may not change them. {in_effect} The page Policies has all fields.",
        ),
        Field(name="base", label="", kind="hidden", value=digest_of([found.values, list(found.locked)])),
    )


def _flat(values: Mapping[str, Any]) -> Mapping[str, object]:
    found: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            found[name] = value
    return found


def _policy(sent: Sent) -> PolicyEdit:
    values: dict[str, Any] = {}
    for field, text in parse_properties(sent.get("values", "")).items():
        section, _, name = field.rpartition(".")
        try:
            value = msgspec.json.decode(text)
        except NOT_JSON:
            value = text
        inner = values.setdefault(section, {}) if section else values
        if not isinstance(inner, dict):
            raise BadRequest(f"{section!r} is both a field and a section.")
        inner[name] = value
    return PolicyEdit(set=values, lock=split_list(sent.get("locked", "")))


async def _preview_policy(call: Call, sent: Sent) -> Preview:
    found, edit = await policies.load_policy(call.lake, *securable_at(call)), _policy(sent)
    check_base(sent, digest_of([found.values, list(found.locked)]), "The policy")
    before = {key: json.dumps(value) for key, value in _flat(found.values).items()}
    after = {key: json.dumps(value) for key, value in _flat(edit.set).items()}
    locks = (Change("locked", ", ".join(sorted(found.locked)), ", ".join(sorted(edit.lock))),)
    changes = (*property_changes(before, after), *(locks if locks[0].before != locks[0].after else ()))
    if not changes:
        raise BadRequest("Nothing changes: the policy is already like this.")
    edited_policy({}, (), edit)
    return Preview(sentence=f"The maintenance policy of {_name(call)} changes.", changes=changes)


async def _change_policy(call: Call, sent: Sent, request: Request) -> str:
    await policies.change_policy(call.lake, *securable_at(call), _policy(sent), request, replaces=True)
    return _page_of(call)


POLICY: Final = Action(
    title=lambda call: f"Maintenance policy of {_name(call)}",
    verb="Change the policy",
    done="policed",
    place=_place,
    fields=_policy_fields,
    preview=_preview_policy,
    apply=_change_policy,
)

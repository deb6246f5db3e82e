"""The pages about the whole workspace."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from markupsafe import Markup

from sandur.catalog.audit import AuditRecord
from sandur.catalog.event_feed.subscriptions import DeadLetter, DeliveryCursor, Subscription
from sandur.catalog.identifiers import Identifier, Namespace, full_name_of
from sandur.catalog.maintenance.policies import FieldOrigin
from sandur.catalog.paging import Page
from sandur.catalog.security.manifest import Principal
from sandur.operations.audit.search import AuditPage
from sandur.operations.browse import ContentEntry
from sandur.operations.event_feed.subscriptions import SubscriptionStatus
from sandur.operations.explore.overview import Activity, CommitFilter, CommitRow
from sandur.operations.explore.search import Hit, SearchResult
from sandur.operations.jobs import Jobs
from sandur.operations.maintenance.overview import MaintenanceOverview
from sandur.operations.policies import ScopeView
from sandur.server.identity import Identity
from sandur.server.ui.drawing.plots import bar_plot
from sandur.server.ui.links import object_link, page_link, securable_action_link
from sandur.server.ui.renderer import View
from sandur.server.ui.texts import bytes_text, count_text
from sandur.settings import Settings

_SECRET: Final = ("secret", "token", "password", "key", "oidc")
_HIDDEN: Final = "(not shown)"


class HitRow(msgspec.Struct, frozen=True, kw_only=True):
    hit: Hit
    name: str
    link: str


class SearchView(View, frozen=True, kw_only=True):
    """`prefixed` are names that begin with the text, if nothing was published; None if no namespace is open.

    `within` is what the search was limited to, and `opened` the namespace that it could be limited to.
    """

    text: str
    within: str
    opened: str
    groups: Sequence[tuple[str, Sequence[HitRow]]]
    published_ms: int
    is_cut: bool
    prefixed: Sequence[HitRow] | None = None


_GROUPS: Final[Mapping[str, str]] = {"name": "Names", "column": "Columns", "property": "Properties", "tag": "Tags"}


def search_view(
    text: str,
    within: Namespace | None,
    opened: Namespace | None,
    found: SearchResult,
    prefixed: Sequence[ContentEntry] | None,
) -> SearchView:
    groups = [(title, [_hit_row(hit) for hit in found.hits if hit.found == kind]) for kind, title in _GROUPS.items()]
    by_prefix = None
    if prefixed is not None and opened is not None:
        made = [
            Hit(found="name", identifier=Identifier(*opened, one.name), kind=one.kind, format=one.format)
            for one in prefixed
        ]
        by_prefix = [_hit_row(hit) for hit in made]
    return SearchView(
        title=f"Search: {text}" if text else "Search",
        section="search",
        text=text,
        within=_scope_text(within),
        opened=_scope_text(opened),
        groups=[(title, rows) for title, rows in groups if rows],
        published_ms=found.published_ms,
        is_cut=found.is_cut,
        prefixed=by_prefix,
    )


def _scope_text(scope: Namespace | None) -> str:
    return ".".join((scope.catalog, *scope.levels)) if scope else ""


def _hit_row(hit: Hit) -> HitRow:
    return HitRow(hit=hit, name=full_name_of(hit.identifier), link=object_link(hit.identifier, hit.kind))


class CommitLine(msgspec.Struct, frozen=True, kw_only=True):
    commit: CommitRow
    name: str
    link: str


class ActivityView(View, frozen=True, kw_only=True):
    rows: Sequence[CommitLine]
    wanted: CommitFilter
    published_ms: int
    rows_link: str


def commit_line(row: CommitRow) -> CommitLine:
    if row.identifier is None:
        return CommitLine(commit=row, name=row.uuid, link=page_link(f"/id/{row.uuid}"))
    at = row.version if row.kind == "table" else None
    link = object_link(row.identifier, row.kind, "timeline", at=at)
    return CommitLine(commit=row, name=full_name_of(row.identifier), link=link)


def activity_view(found: Activity, wanted: CommitFilter) -> ActivityView:
    query: dict[str, str] = {name: value for name, value in wanted._asdict().items() if value}
    return ActivityView(
        title="Activity",
        section="activity",
        rows=[commit_line(row) for row in found.commits],
        wanted=wanted,
        published_ms=found.published_ms,
        rows_link=page_link("/activity", **query, only="rows"),
    )


class JobsView(View, frozen=True, kw_only=True):
    jobs: Jobs


def jobs_view(jobs: Jobs) -> JobsView:
    return JobsView(title="Jobs", section="jobs", jobs=jobs)


class WorkRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row about a table: a request, work of the next run, or an operation. `change` is files and bytes in words."""

    name: str
    link: str
    row: Mapping[str, Any]
    change: str = ""


class MaintenanceView(View, frozen=True, kw_only=True):
    found: MaintenanceOverview
    requests: Sequence[WorkRow]
    planned: Sequence[WorkRow]
    skipped: Sequence[WorkRow]
    operations: Sequence[WorkRow]
    plot: Markup


def maintenance_view(found: MaintenanceOverview) -> MaintenanceView:
    total = bytes_text(sum(size for _, size in found.saved))
    return MaintenanceView(
        title="Maintenance",
        section="maintenance",
        found=found,
        requests=[_work_row(row) for row in found.requests],
        planned=[_work_row(row) for row in found.planned if not row.get("skipped")],
        skipped=[_work_row(row) for row in found.planned if row.get("skipped")],
        operations=[_work_row(row) for row in found.operations],
        plot=bar_plot(
            [(day[5:], size) for day, size in found.saved],
            label=f"Storage saved a day, {total} on {len(found.saved)} days",
            text=bytes_text,
        ),
    )


def _work_row(row: Mapping[str, Any]) -> WorkRow:
    identifier = Identifier(row["catalog"], tuple(row["namespace"].split(".")), row["name"])
    changes = [
        f"{text(row[f'{what}_before'])} → {text(row[f'{what}_after'])}{unit}"
        for what, text, unit in (("files", count_text, " files"), ("bytes", bytes_text, ""))
        if row.get(f"{what}_before") is not None and row.get(f"{what}_after") is not None
    ]
    link = object_link(identifier, "table", "health")
    return WorkRow(name=full_name_of(identifier), link=link, row=row, change=", ".join(changes))


class AuditView(View, frozen=True, kw_only=True):
    """`is_on`: requests are recorded by default."""

    records: Sequence[AuditRecord]
    damaged: Sequence[str]
    fields: Mapping[str, str]
    next_link: str
    is_on: bool


def audit_view(found: AuditPage, fields: Mapping[str, str], *, is_on: bool) -> AuditView:
    more = page_link("/audit", **fields, after=found.next_token) if found.next_token else ""
    return AuditView(
        title="Audit",
        section="audit",
        records=found.records,
        damaged=found.damaged,
        fields=fields,
        next_link=more,
        is_on=is_on,
    )


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    subscription: Subscription
    link: str
    filter: str


class SubscriptionsView(View, frozen=True, kw_only=True):
    rows: Sequence[SubscriptionRow]


class SubscriptionView(View, frozen=True, kw_only=True):
    subscription: Subscription
    filter: str
    cursor: DeliveryCursor | None
    letters: Sequence[DeadLetter]
    has_more_letters: bool


def subscriptions_view(found: Sequence[Subscription]) -> SubscriptionsView:
    rows = [
        SubscriptionRow(subscription=one, link=page_link(f"/subscriptions/{one.id}"), filter=_filter_text(one))
        for one in found
    ]
    return SubscriptionsView(title="Subscriptions", section="subscriptions", rows=rows)


def subscription_view(status: SubscriptionStatus, letters: Page[DeadLetter]) -> SubscriptionView:
    one = status.subscription
    return SubscriptionView(
        title=one.description or one.id,
        section="subscriptions",
        subscription=one,
        filter=_filter_text(one),
        cursor=status.cursor,
        letters=letters.entries,
        has_more_letters=letters.next_token is not None,
    )


def _filter_text(one: Subscription) -> str:
    """Which events it gets, in words."""
    wanted = one.wanted
    parts = [".".join(path) for path in wanted.names]
    parts += [*wanted.uuids, *wanted.kinds, *wanted.object_types]
    return ", ".join(parts) or "everything"


class PolicyView(View, frozen=True, kw_only=True):
    """The policy of a scope: what it sets itself, and every field with its origin."""

    type: str
    name: str
    own: Sequence[tuple[str, str]]
    locked: Sequence[str]
    fields: Sequence[FieldOrigin]
    edit_link: str


def policy_view(type_: str, name: str, found: ScopeView) -> PolicyView:
    return PolicyView(
        title="Policy of the workspace" if type_ == "metastore" else f"Policy of {name}",
        section="policies",
        type=type_,
        name=name,
        own=_flat(found.values),
        locked=found.locked,
        fields=found.merged.origins,
        edit_link=securable_action_link("policy", type_, name),
    )


def _flat(values: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """The fields of sections, as `section.field`."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += [(f"{name}.{inner}", text) for inner, text in _flat(value)]
        else:
            found.append((name, _plain(value)))
    return found


def _plain(value: object) -> str:
    """A value as a settings file has it, without the marks of lists."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class ServerView(View, frozen=True, kw_only=True):
    """`settings` are None for those who do not administer the server."""

    version: str
    authentication: str
    settings: Sequence[tuple[str, str]] | None


def server_view(version: str, shown: Settings | None, settings: Settings) -> ServerView:
    return ServerView(
        title="Server",
        section="server",
        version=version,
        authentication=settings.authentication,
        settings=None if shown is None else setting_rows(shown),
    )


def setting_rows(settings: Settings) -> Sequence[tuple[str, str]]:
    """Every setting with its value, without secrets."""
    rows = []
    for key, value in _flat(msgspec.to_builtins(settings)):
        is_secret = any(word in key for word in _SECRET) and value and not key.endswith("_lifetime")
        rows.append((key, _HIDDEN if is_secret else value))
    return rows


class MeView(View, frozen=True, kw_only=True):
    identity: Identity
    kind: str
    groups: Sequence[str]
    is_on: bool


def me_view(identity: Identity, principal: Principal | None, groups: Sequence[str], *, is_on: bool) -> MeView:
    kind = principal.kind if principal else ("user" if identity.caller.is_external else "anonymous")
    return MeView(title=identity.principal, section="me", identity=identity, kind=kind, groups=groups, is_on=is_on)

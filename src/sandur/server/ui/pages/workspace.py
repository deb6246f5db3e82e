"""The pages about the whole workspace: search, activity, jobs, audit, subscriptions, policies, and the server."""

from typing import Final

from sandur import __version__
from sandur.catalog.audit import AuditFilter
from sandur.catalog.identifiers import parse_full_name
from sandur.catalog.security.privileges import parse_securable_type
from sandur.errors import BadRequest, Forbidden
from sandur.operations import policies
from sandur.operations.access import authorize_caller, authorize_metastore
from sandur.operations.audit.search import LAST_MS, search_audit, time_of
from sandur.operations.browse import list_contents
from sandur.operations.event_feed import subscriptions
from sandur.operations.explore.overview import CommitFilter, load_activity
from sandur.operations.explore.search import TEXT_CHARS_MAX, scope_of, search
from sandur.operations.identity.principals import describe_caller
from sandur.operations.jobs import list_jobs
from sandur.operations.maintenance.overview import load_overview
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.needs import ADMINISTER, SEE_METASTORE, SEE_NAMESPACE
from sandur.server.ui.renderer import lake_for, page
from sandur.server.ui.views import workspace as views
from sandur.storage.cell import gather_all

_PREFIX_HITS: Final = 100
_AUDIT_SINCE: Final = "P1D"
_AUDIT_PAGE: Final = 100
_AUDIT_TEXTS: Final = ("principal", "operation", "securable", "kind", "request_id")
_DECISIONS: Final = ("", "allowed", "denied", "none")
_LETTERS_SHOWN: Final = 50


async def show_search(call: Call) -> Answer:
    """What contains a text. If nothing was published, the names of the open namespace that begin with it.

    `from` is the namespace that is open in the browser; `in` is the one that the search is limited to.
    """
    text, within = call.query.get("q", "")[:TEXT_CHARS_MAX], scope_of(call.query.get("in", ""))
    opened = within or scope_of(call.query.get("from", ""))
    found = await search(call.lake, text, within=within)
    prefixed = None
    if not found.published_ms and opened and opened.levels and text:
        lake = lake_for(call, SEE_NAMESPACE)
        names = await list_contents(lake, opened, begins=text, page_size=_PREFIX_HITS)
        prefixed = [entry for entry in names.entries if entry.name.startswith(text)]
    return page(call, "search.html", views.search_view(text, within, opened, found, prefixed))


async def show_activity(call: Call) -> Answer:
    """The newest commits; with `only=rows`, nothing but their rows, for a page that is open."""
    query = call.query
    wanted = CommitFilter(**{name: query.get(name, "") for name in CommitFilter._fields})
    found = await load_activity(call.lake, wanted)
    template = "activity_rows.html" if query.get("only") == "rows" else "activity.html"
    return page(call, template, views.activity_view(found, wanted))


async def show_jobs(call: Call) -> Answer:
    return page(call, "jobs.html", views.jobs_view(await list_jobs(call.lake)))


async def show_maintenance(call: Call) -> Answer:
    return page(call, "maintenance.html", views.maintenance_view(await load_overview(call.lake)))


async def show_audit(call: Call) -> Answer:
    query = call.query
    if query.get("decision", "") not in _DECISIONS:
        raise BadRequest(f"Invalid decision {query['decision'][:40]!r}: expected allowed, denied or none")
    now_ms, since, until = call.lake.clock.now_ms(), query.get("since") or _AUDIT_SINCE, query.get("until", "")
    wanted = AuditFilter(
        since_ms=time_of(since, now_ms),
        until_ms=time_of(until, now_ms) if until else LAST_MS,
        decision=query.get("decision", ""),
        **{name: query.get(name, "") for name in _AUDIT_TEXTS},
    )
    found = await search_audit(call.lake, wanted, page_size=_AUDIT_PAGE, page_token=query.get("after") or None)
    fields = {name: query.get(name, "") for name in (*_AUDIT_TEXTS, "decision", "since", "until")}
    return page(call, "audit.html", views.audit_view(found, fields, is_on=call.settings.authentication == "on"))


async def show_subscriptions(call: Call) -> Answer:
    return page(call, "subscriptions.html", views.subscriptions_view(await subscriptions.list_subscriptions(call.lake)))


async def show_subscription(call: Call) -> Answer:
    id_ = call.value("id")
    status, letters = await gather_all(
        (
            subscriptions.load_subscription(call.lake, id_),
            subscriptions.list_dead_letters(call.lake, id_, token=None, size=_LETTERS_SHOWN),
        )
    )
    return page(call, "subscription.html", views.subscription_view(status, letters))


async def show_policies(call: Call) -> Answer:
    """The policy of a scope: the workspace, or what `type` and `name` say."""
    type_ = parse_securable_type(call.query.get("type") or "metastore")
    name = call.query.get("name") or "metastore"
    if type_ == "table":
        parse_full_name(name)
    found = await policies.load_policy(call.lake, type_, name)
    return page(call, "policies.html", views.policy_view(type_, name, found))


async def show_server(call: Call) -> Answer:
    """Whether the server is ready, and its version; its settings only for those who administer it."""
    _, administers = await gather_all((authorize_caller(lake_for(call, SEE_METASTORE)), _administers(call)))
    settings = call.settings if administers else None
    return page(call, "server.html", views.server_view(__version__, settings, call.settings))


async def _administers(call: Call) -> bool:
    try:
        await authorize_metastore(lake_for(call, ADMINISTER))
    except Forbidden:
        return False
    return True


async def show_me(call: Call) -> Answer:
    principal, groups = await describe_caller(call.lake)
    return page(call, "me.html", views.me_view(call.identity, principal, groups, is_on=call.access is not None))

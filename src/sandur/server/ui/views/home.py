"""The first page: catalogs, what changed last, and which tables need work."""

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from sandur.catalog.identifiers import full_name_of
from sandur.catalog.paging import Page
from sandur.operations.browse import ContentEntry
from sandur.operations.explore.overview import Overview, Totals
from sandur.server.ui.drawing.plots import bar_plot
from sandur.server.ui.links import catalog_link, object_link, page_link
from sandur.server.ui.renderer import View
from sandur.server.ui.texts import count_text
from sandur.server.ui.views.data import Row, row_of
from sandur.server.ui.views.workspace import CommitLine, commit_line


class NeedyRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    link: str
    reasons: tuple[str, ...]


class HomeView(View, frozen=True, kw_only=True):
    """`totals` are None, and `plot` is empty, for callers who do not see every table."""

    catalogs: Sequence[Row]
    next_link: str = ""
    published_ms: int = 0
    totals: Totals | None = None
    plot: Markup = Markup("")
    newest: Sequence[CommitLine] = ()
    needy: Sequence[NeedyRow] = ()


def home_view(page: Page[ContentEntry], found: Overview) -> HomeView:
    rows = [row_of(entry, catalog_link(entry.name)) for entry in page.entries]
    total = sum(count for _, count in found.days)
    words = f"Commits a day, {count_text(total)} on {len(found.days)} days"
    return HomeView(
        title="Data",
        catalogs=rows,
        next_link=page_link("/", after=page.next_token) if page.next_token else "",
        published_ms=found.published_ms,
        totals=found.totals,
        plot=bar_plot([(day[5:], count) for day, count in found.days], label=words, text=count_text),
        newest=[commit_line(row) for row in found.newest],
        needy=[
            NeedyRow(
                name=full_name_of(one.identifier),
                link=object_link(one.identifier, "table", "health"),
                reasons=one.reasons,
            )
            for one in found.worst
        ],
    )

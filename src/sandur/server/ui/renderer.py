"""Pages as HTML: the templates, the frame around every page, and the headers of every answer."""

import shlex
from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from sandur.catalog.security.manifest import ANONYMOUS, Access
from sandur.catalog.security.privileges import Needs
from sandur.operations.lake import Lake
from sandur.server.context import Call
from sandur.server.http import CONTENT_TYPE, NO_STORE, Answer, Headers, header_name
from sandur.server.ui import texts
from sandur.server.ui.actions.menu import catalog_actions, namespace_actions, object_actions, workspace_actions
from sandur.server.ui.links import named_action_link, page_link
from sandur.server.ui.static_files import static_answer, static_files

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFETY: Final[Headers] = (
    (header_name("Content-Security-Policy"), _POLICY),
    (header_name("Referrer-Policy"), b"same-origin"),
    (header_name("Cross-Origin-Opener-Policy"), b"same-origin"),
    (header_name("Cross-Origin-Resource-Policy"), b"same-origin"),
    (header_name("X-Frame-Options"), b"DENY"),
)
"""What browsers must obey, on every answer of the UI."""

_HTML: Final = (CONTENT_TYPE, b"text/html; charset=utf-8")
_LOCATION: Final = header_name("Location")
_SEE_OTHER: Final = 303


class Crumb(msgspec.Struct, frozen=True):
    """A page above this one."""

    text: str
    link: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What every page shows. `section` is the entry of the menu that it belongs to."""

    title: str
    crumbs: tuple[Crumb, ...] = ()
    section: str = "data"


class Notice(msgspec.Struct, frozen=True):
    """What a page says about the action before it."""

    kind: str
    text: str


DONE: Final[Mapping[str, str]] = {
    "branched": "The branch or tag was created.",
    "commented": "The comment was changed.",
    "created": "It was created.",
    "dropped": "It was dropped.",
    "granted": "The grants were changed.",
    "owned": "It has a new owner.",
    "policed": "The policy was changed.",
    "properties": "The properties were changed.",
    "removed": "The branch or tag was removed.",
    "renamed": "It was renamed.",
    "requested": "Maintenance is requested. The next run of the pipeline does it before other tables.",
    "restored": "The table was restored. The versions in between are kept until they expire.",
    "tagged": "The tags were changed.",
    "undropped": "It is back.",
    "viewed": "The view was changed.",
}
"""What a page says after an action, by the parameter `done`: an address can choose a text, never write one."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds a page: who looks at it, when, and at which address.

    `principal` is empty without authentication. `form_token` goes into every form.
    """

    principal: str = ""
    now_ms: int = 0
    path: str = ""
    query: str = ""
    request_id: str = ""
    notice: Notice | None = None
    form_token: str = ""


def frame_of(call: Call) -> Frame:
    done = DONE.get(call.query.get("done", ""))
    return Frame(
        principal=call.identity.principal if call.access and call.identity.caller is not ANONYMOUS else "",
        now_ms=call.lake.clock.now_ms(),
        path=call.http.path.decode("latin-1"),
        query=call.query.get("q", ""),
        request_id=call.http.request_id,
        notice=Notice("good", done) if done else None,
        form_token=call.http.form_token or "",
    )


def page(call: Call, template: str, view: msgspec.Struct, *, status: int = 200) -> Answer:
    """The page of a view, or a fragment of one."""
    return html_answer(render(template, frame_of(call), view), status=status)


def html_answer(text: str, *headers: tuple[bytes, bytes], status: int = 200) -> Answer:
    body = text.encode("utf-8", "backslashreplace")  # Names of other catalogs may contain lone surrogates.
    return Answer(status, body, (_HTML, NO_STORE, *SAFETY, *headers))


def redirect(link: str, *, status: int = _SEE_OTHER) -> Answer:
    """Another page of the UI; `link` is made by `links`, never by a client."""
    return Answer(status, b"", ((_LOCATION, link.encode("ascii")), NO_STORE, *SAFETY))


def lake_for(call: Call, needs: Needs) -> Lake:
    """The lake for a part of a page: it acts for the same caller, and its operations check these needs.

    A page may show what several operations return. Each checks what its own route declares, so that a page shows
    nothing that another API would refuse.
    """
    if call.access is None:
        return call.lake
    access = Access(call.access.caller, needs, call.access.decisions, call.access.capabilities)
    return call.lake.acting_for(access)


def render(template: str, frame: Frame, view: msgspec.Struct) -> str:
    return _environment().get_template(template).render(frame=frame, view=view)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("sandur.server.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: Mapping[str, object] = {
        "age": texts.age_text,
        "bytes": texts.bytes_text,
        "count": texts.count_text,
        "cut": texts.cut_text,
        "file_name": texts.file_name,
        "iso": texts.iso_text,
        "side": texts.side_text,
        "time": texts.time_text,
        "word": shlex.quote,
    }
    environment.filters.update(filters)
    environment.globals.update(
        link=page_link,
        moment=lambda time_ms, frame: texts.moment_html(time_ms, frame.now_ms),
        signed=texts.signed_text,
        static=static_files().address,
        catalog_actions=catalog_actions,
        namespace_actions=namespace_actions,
        object_action=named_action_link,
        object_actions=object_actions,
        workspace_actions=workspace_actions,
    )
    return environment


async def load_static_file(call: Call) -> Answer:
    """The stylesheet and the scripts."""
    answer = static_answer(call.value("hash"), call.value("file"))
    return Answer(answer.status, answer.body, (*answer.headers, *SAFETY))

"""The steps of every action: a form, a preview of what it would do, and the operation itself.

Every form carries the secret of its session and an idempotency key that is made with it: a form that is sent twice acts
once. Without a preview, nothing is changed.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.catalog.records import Request
from sandur.errors import AlreadyExists, BadRequest, Conflict, Hidden, KeyReused, NotEmpty, NotFound, Unsupported
from sandur.server.context import Call, request_hash, validate_key
from sandur.server.http import Answer, decode_query
from sandur.server.identity import source_of
from sandur.server.ui.links import ROOT, add_parameter
from sandur.server.ui.pages.login import own_path
from sandur.server.ui.renderer import Crumb, View, page, redirect
from sandur.server.ui.sessions import check_form

Sent = Mapping[str, str]
"""The fields of a form as the browser sent them; an absent one is empty."""

OWN_FIELDS: Final = frozenset({"form_token", "key", "step", "typed"})
"""Fields of every form, which say nothing about the change."""
_NAMED_IN_FORM: Final = frozenset({"user", "principal", "group", "column", "namespace"})
"""What a field of a form may name; if it is missing, the form is wrong, and not the address."""


class Unchanged(BadRequest):
    """Everything is already as the form wants it: a mistake in a preview, and the result of a form that was sent."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form. `options` are the values of a choice with their texts."""

    name: str
    label: str
    kind: Literal["text", "area", "choice", "check", "hidden"] = "text"
    value: str = ""
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()
    required: bool = False


class Change(NamedTuple):
    """One thing that an action changes; an empty text means that it is absent."""

    what: str
    before: str
    after: str


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What an action would do. `typed` is what a person types to confirm it, because data can be lost.

    `warning` says what is lost. `command` is a command that does the same. `is_possible` is False if nothing would
    change, or only the command can do it.
    """

    sentence: str
    changes: tuple[Change, ...] = ()
    warning: str = ""
    typed: str = ""
    command: str = ""
    is_possible: bool = True
    kept: Mapping[str, str] = {}


class Action(NamedTuple):
    """One action. `title` and `verb` are for people; `done` is the text after it (`renderer.DONE`).

    `fields` makes the form for the values that were sent, and decides whether the caller may act at all. `preview`
    checks the values and describes the change. `apply` changes, and returns the page that shows the result.
    """

    title: Callable[[Call], str]
    verb: str
    done: str
    place: Callable[[Call], tuple[Crumb, ...]]
    fields: Callable[[Call, Sent], Awaitable[tuple[Field, ...]]]
    preview: Callable[[Call, Sent], Awaitable[Preview]]
    apply: Callable[[Call, Sent, Request], Awaitable[str]]
    is_dangerous: bool = False


class FormView(View, frozen=True, kw_only=True):
    """A form, with the reason why it was not accepted."""

    fields: tuple[Field, ...]
    key: str
    verb: str
    back: str
    error: str = ""
    is_conflict: bool = False


class PreviewView(View, frozen=True, kw_only=True):
    preview: Preview
    sent: tuple[tuple[str, str], ...]
    key: str
    verb: str
    back: str
    is_dangerous: bool
    error: str = ""
    is_conflict: bool = False


async def show_form(call: Call, action: Action) -> Answer:
    """The form, filled with what the address says; the preview of an action that has nothing to fill in."""
    sent = {name: value for name, value in call.query.items() if name not in OWN_FIELDS}
    fields = await action.fields(call, sent)
    return _form_page(call, action, fields) if fields else await _show_preview(call, action, sent)


async def take_form(call: Call, action: Action) -> Answer:
    """One step of an action: the form again, its preview, or the change itself."""
    form = decode_query(call.http.body)
    sent = {name: value for name, value in form.items() if name not in OWN_FIELDS}
    if form.get("step") == "edit":  # It changes nothing, so the form of a session that is over may send it.
        return _form_page(call, action, await action.fields(call, sent))
    check_form(call.http, form)
    if form.get("step") != "apply":
        return await _show_preview(call, action, sent)
    return await _apply(call, action, sent, form)


async def _apply(call: Call, action: Action, sent: Sent, form: Sent) -> Answer:
    """Change. A preview that fails now may fail because this form was sent before: then its key answers."""
    key, refused, preview = validate_key(form.get("key", "")), None, None
    try:
        preview = await action.preview(call, sent)
    except Unchanged:
        return redirect(add_parameter(_back(call, action), done=action.done))
    except (AlreadyExists, Conflict, NotEmpty, BadRequest, NotFound) as error:
        refused = error
    if preview and preview.typed and form.get("typed", "").strip() != preview.typed:
        return _preview_page(call, action, sent, preview, key=key, error=f"Type {preview.typed} to confirm.")
    try:
        link = await action.apply(call, sent, form_request(call, sent, key))
    except (AlreadyExists, Conflict, KeyReused, NotEmpty) as error:
        return await _show_preview(call, action, sent, conflict=str(error))
    except (BadRequest, Unsupported, NotFound) as error:
        if isinstance(refused, AlreadyExists | Conflict | NotEmpty):
            return await _show_preview(call, action, sent, conflict=str(refused))
        return await _show_mistake(call, action, sent, refused or error)
    return redirect(add_parameter(link, done=action.done))


def form_request(call: Call, sent: Sent, key: str) -> Request:
    """What a mutation carries, with the key of the form."""
    canonical = msgspec.json.encode(dict(sorted(sent.items())))
    hash_ = request_hash(call.operation, list(call.values.values()), canonical)
    return Request(hash=hash_, key=key, source=source_of(call.http, call.identity))


async def _show_preview(call: Call, action: Action, sent: Sent, *, conflict: str = "") -> Answer:
    """The preview as things are now; after a conflict, with a new key, because it is another change."""
    try:
        preview = await action.preview(call, sent)
    except (AlreadyExists, Conflict, NotEmpty) as error:
        fields = await action.fields(call, sent)
        return _form_page(call, action, fields, error=conflict or str(error), is_conflict=True, status=409)
    except (BadRequest, Unsupported, NotFound) as error:
        return await _show_mistake(call, action, sent, error)
    return _preview_page(call, action, sent, preview, error=conflict, is_conflict=bool(conflict))


async def _show_mistake(call: Call, action: Action, sent: Sent, error: BadRequest | Unsupported | NotFound) -> Answer:
    """The form with the reason. What the address names is missing: raises the error itself."""
    if isinstance(error, Hidden) or (isinstance(error, NotFound) and error.subject not in _NAMED_IN_FORM):
        raise error
    return _form_page(call, action, await action.fields(call, sent), error=str(error), status=400)


def _form_page(
    call: Call,
    action: Action,
    fields: tuple[Field, ...],
    *,
    error: str = "",
    is_conflict: bool = False,
    status: int = 200,
) -> Answer:
    view = FormView(
        title=action.title(call),
        crumbs=action.place(call),
        fields=fields,
        key=call.lake.clock.new_id(),
        verb=action.verb,
        back=_back(call, action),
        error=error,
        is_conflict=is_conflict,
    )
    return page(call, "actions/form.html", view, status=status)


def _preview_page(
    call: Call,
    action: Action,
    sent: Sent,
    preview: Preview,
    *,
    key: str = "",
    error: str = "",
    is_conflict: bool = False,
) -> Answer:
    view = PreviewView(
        title=action.title(call),
        crumbs=action.place(call),
        preview=preview,
        sent=tuple({**sent, **preview.kept}.items()),
        key=key or call.lake.clock.new_id(),
        verb=action.verb,
        back=_back(call, action),
        is_dangerous=action.is_dangerous,
        error=error,
        is_conflict=is_conflict,
    )
    status = 409 if is_conflict else 400 if error else 200
    return page(call, "actions/preview.html", view, status=status)


def _back(call: Call, action: Action) -> str:
    places = action.place(call)
    return own_path(places[-1].link) if places else ROOT

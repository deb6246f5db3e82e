"""Actions on namespaces: create, change properties, drop."""

from typing import Final

from sandur.catalog.identifiers import Namespace, checked_namespace, full_name_of
from sandur.catalog.records import Request
from sandur.operations.browse import describe_catalog, describe_namespace
from sandur.operations.containers import drop, namespaces
from sandur.server.context import Call
from sandur.server.ui.actions.steps import Action, Field, Preview, Sent
from sandur.server.ui.actions.texts import (
    command_text,
    parse_properties,
    property_changes,
    property_fields,
    sent_properties,
    typed_name,
)
from sandur.server.ui.links import catalog_link, namespace_link
from sandur.server.ui.pages.data import namespace_of
from sandur.server.ui.renderer import Crumb
from sandur.server.ui.views.data import container_crumbs


def namespace_place(call: Call) -> tuple[Crumb, ...]:
    return container_crumbs(namespace_of(call))


def _catalog_place(call: Call) -> tuple[Crumb, ...]:
    return container_crumbs(Namespace(call.value("catalog"), ()))


def _new_namespace(call: Call, sent: Sent) -> Namespace:
    levels = (sent.get("parent", ""), sent.get("name", ""))
    text = ".".join(part.strip() for part in levels if part.strip())
    return checked_namespace(Namespace(call.value("catalog"), tuple(text.split("."))))


async def _create_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    await describe_catalog(call.lake, call.value("catalog"))
    hint = "Namespace that contains it, with dots between its levels. Empty: the catalog itself."
    return (
        Field(name="name", label="Name", value=sent.get("name", ""), required=True),
        Field(name="parent", label="Inside", value=sent.get("parent", ""), hint=hint),
        Field(name="comment", label="Comment", value=sent.get("comment", "")),
        Field(
            name="properties",
            label="Properties",
            kind="area",
            value=sent.get("properties", ""),
            hint="One line for each: key = value.",
        ),
    )


def _create_properties(sent: Sent) -> dict[str, str]:
    comment = {"comment": sent["comment"].strip()} if sent.get("comment", "").strip() else {}
    return {**parse_properties(sent.get("properties", "")), **comment}


async def _preview_create(call: Call, sent: Sent) -> Preview:
    await describe_catalog(call.lake, call.value("catalog"))
    namespace, properties = _new_namespace(call, sent), _create_properties(sent)
    options = [f"--property={key}={value}" for key, value in properties.items()]
    return Preview(
        sentence=f"The namespace {full_name_of(namespace)} is created. You own it.",
        changes=property_changes({}, properties),
        command=command_text("create", "namespace", typed_name(namespace), *options),
    )


async def _create(call: Call, sent: Sent, request: Request) -> str:
    namespace = _new_namespace(call, sent)
    await namespaces.create_namespace(call.lake, namespace, _create_properties(sent), request)
    return namespace_link(namespace)


CREATE_NAMESPACE: Final = Action(
    title=lambda call: f"Create a namespace in {call.value('catalog')}",
    verb="Create the namespace",
    done="created",
    place=_catalog_place,
    fields=_create_fields,
    preview=_preview_create,
    apply=_create,
)


async def _property_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    return property_fields((await describe_namespace(call.lake, namespace_of(call))).properties, sent)


async def _preview_properties(call: Call, sent: Sent) -> Preview:
    changes, _ = sent_properties((await describe_namespace(call.lake, namespace_of(call))).properties, sent)
    return Preview(sentence=f"The properties of {full_name_of(namespace_of(call))} change.", changes=changes)


async def _change_properties(call: Call, sent: Sent, request: Request) -> str:
    namespace = namespace_of(call)
    changes, after = sent_properties((await describe_namespace(call.lake, namespace_of(call))).properties, sent)
    updates = {one.what: after[one.what] for one in changes if one.what in after}
    removals = [one.what for one in changes if one.what not in after]
    await namespaces.update_namespace_properties(
        call.lake, namespace, removals=removals, updates=updates, request=request
    )
    return namespace_link(namespace)


NAMESPACE_PROPERTIES: Final = Action(
    title=lambda call: f"Properties of {full_name_of(namespace_of(call))}",
    verb="Change the properties",
    done="properties",
    place=namespace_place,
    fields=_property_fields,
    preview=_preview_properties,
    apply=_change_properties,
)


async def _drop_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    del sent
    await describe_namespace(call.lake, namespace_of(call))
    return ()


async def _preview_drop(call: Call, sent: Sent) -> Preview:
    del sent
    namespace = namespace_of(call)
    await describe_namespace(call.lake, namespace)
    return Preview(
        sentence=f"The namespace {full_name_of(namespace)} is dropped, if nothing is in it.",
        warning="Its properties, its comment and the grants on it are lost. A namespace cannot be brought back.",
        typed=namespace.levels[-1],
        command=command_text("drop", typed_name(namespace)),
    )


async def _drop(call: Call, sent: Sent, request: Request) -> str:
    del sent
    namespace = namespace_of(call)
    await drop.drop_namespace(call.lake, namespace, request)
    return namespace_link(namespace.parent) if namespace.parent else catalog_link(namespace.catalog)


DROP_NAMESPACE: Final = Action(
    title=lambda call: f"Drop {full_name_of(namespace_of(call))}",
    verb="Drop the namespace",
    done="dropped",
    place=namespace_place,
    fields=_drop_fields,
    preview=_preview_drop,
    apply=_drop,
    is_dangerous=True,
)

"""Which table a path of the Delta API names."""

from sandur.catalog.identifiers import Identifier, checked_new_name, identifier_from_parts
from sandur.server.unity_rest.call import Call


def named_table(call: Call) -> Identifier:
    return identifier_from_parts(call.value("catalog"), call.value("schema"), call.value("table"))


def new_table(call: Call, name: str) -> Identifier:
    """A table that is to be made in the schema of the path; Invalid when nothing new may be called so."""
    return identifier_from_parts(call.value("catalog"), call.value("schema"), checked_new_name("table", name))

"""Commits of several tables at once over HTTP."""

from sandur.catalog.identifiers import Identifier
from sandur.errors import BadRequest
from sandur.iceberg.requests import TableCommit, decode_transaction
from sandur.operations.transaction import commit_transaction
from sandur.server.iceberg_rest.call import Call
from sandur.server.messages import NO_CONTENT, Answer


async def commit(call: Call) -> Answer:
    changes = decode_transaction(call.http.body)
    commits = [(_identifier(call, change), change) for change in changes]
    await commit_transaction(call.lake, call.catalog, commits, call.request())
    return NO_CONTENT


def _identifier(call: Call, change: TableCommit) -> Identifier:
    if change.identifier is None:
        raise BadRequest("Invalid table changes: every change needs an identifier")
    return Identifier(call.catalog, change.identifier.namespace, change.identifier.name)

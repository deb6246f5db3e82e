"""PyIceberg behind the interface of the compared engines."""

import json
import time

from pydantic import ValidationError as MalformedError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.exceptions import ValidationError as RuleError
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import update_table_metadata

from tests.differential.outcomes import Commit, JsonObject, Outcome, Verdict


def commit_table(commit: Commit) -> Outcome:
    """The result of PyIceberg for a request against an existing table."""
    identifier = {"namespace": ["db"], "name": "table"}
    try:
        request = CommitTableRequest.model_validate_json(json.dumps({"identifier": identifier, **commit.request}))
        base = TableMetadataUtil.parse_raw(commit.base_text.decode())
        for requirement in request.requirements:
            requirement.validate(base)
        _leave_millisecond(base.last_updated_ms)
        built = update_table_metadata(base, request.updates, metadata_location=commit.base_location)
    except CommitFailedException as conflict:
        return Outcome(Verdict.CONFLICT, message=str(conflict))
    except (ValueError, KeyError, NotImplementedError, RuleError, MalformedError) as refusal:
        return Outcome(Verdict.REFUSED, message=str(refusal), has_crashed=isinstance(refusal, KeyError))
    if _written(built) == _written(base):
        return Outcome(Verdict.UNCHANGED)
    return Outcome(Verdict.CHANGED, metadata=_written(built), text=json.dumps(_written(built)).encode())


def _leave_millisecond(base_ms: int) -> None:
    """Wait for the end of the base's millisecond: within it, PyIceberg reads its clock twice, and its times differ."""
    while time.time_ns() // 1_000_000 == base_ms:
        pass


def rewritten(text: bytes) -> JsonObject:
    """A metadata file after PyIceberg has read and written it."""
    return _written(TableMetadataUtil.parse_raw(text.decode()))


def _written(metadata: TableMetadata) -> JsonObject:
    # Not `model_dump_json`, which refuses version 3.
    return metadata.model_dump(mode="json")

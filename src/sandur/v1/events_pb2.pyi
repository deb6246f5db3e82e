from sandur.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventFilter(_message.Message):
    __slots__ = ("names", "object_ids", "kinds", "object_types", "since_ms")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    OBJECT_IDS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_TYPES_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[_common_pb2.Name]
    object_ids: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    object_types: _containers.RepeatedScalarFieldContainer[str]
    since_ms: int
    def __init__(self, names: _Optional[_Iterable[_Union[_common_pb2.Name, _Mapping]]] = ..., object_ids: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., object_types: _Optional[_Iterable[str]] = ..., since_ms: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("filter", "position")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    filter: EventFilter
    position: str
    def __init__(self, filter: _Optional[_Union[EventFilter, _Mapping]] = ..., position: _Optional[str] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("events", "position", "end")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    position: str
    end: str
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., position: _Optional[str] = ..., end: _Optional[str] = ...) -> None: ...

class QueryEventsRequest(_message.Message):
    __slots__ = ("filter", "page")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    filter: EventFilter
    page: _common_pb2.Page
    def __init__(self, filter: _Optional[_Union[EventFilter, _Mapping]] = ..., page: _Optional[_Union[_common_pb2.Page, _Mapping]] = ...) -> None: ...

class QueryEventsResponse(_message.Message):
    __slots__ = ("events", "position", "has_more")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    position: str
    has_more: bool
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., position: _Optional[str] = ..., has_more: _Optional[bool] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "type", "time_ms", "object_type", "object_id", "name", "renamed_from", "source", "format", "operation", "version", "snapshot_id", "refs", "details", "commit_key", "previous", "position")
    class RefsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RENAMED_FROM_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    REFS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_KEY_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    time_ms: int
    object_type: str
    object_id: str
    name: _common_pb2.Name
    renamed_from: _common_pb2.Name
    source: EventSource
    format: str
    operation: str
    version: int
    snapshot_id: int
    refs: _containers.ScalarMap[str, int]
    details: _containers.RepeatedScalarFieldContainer[str]
    commit_key: str
    previous: str
    position: str
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., time_ms: _Optional[int] = ..., object_type: _Optional[str] = ..., object_id: _Optional[str] = ..., name: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., renamed_from: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., source: _Optional[_Union[EventSource, _Mapping]] = ..., format: _Optional[str] = ..., operation: _Optional[str] = ..., version: _Optional[int] = ..., snapshot_id: _Optional[int] = ..., refs: _Optional[_Mapping[str, int]] = ..., details: _Optional[_Iterable[str]] = ..., commit_key: _Optional[str] = ..., previous: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class EventSource(_message.Message):
    __slots__ = ("kind", "principal", "client", "run_id", "task_id", "trace_id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    principal: str
    client: str
    run_id: str
    task_id: str
    trace_id: str
    def __init__(self, kind: _Optional[str] = ..., principal: _Optional[str] = ..., client: _Optional[str] = ..., run_id: _Optional[str] = ..., task_id: _Optional[str] = ..., trace_id: _Optional[str] = ...) -> None: ...

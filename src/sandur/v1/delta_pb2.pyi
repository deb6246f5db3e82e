from sandur.v1 import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeltaTable(_message.Message):
    __slots__ = ("name", "table")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.Name
    table: bytes
    def __init__(self, name: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., table: _Optional[bytes] = ...) -> None: ...

class DeltaStage(_message.Message):
    __slots__ = ("name", "uuid", "location", "stage")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.Name
    uuid: str
    location: str
    stage: bytes
    def __init__(self, name: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., uuid: _Optional[str] = ..., location: _Optional[str] = ..., stage: _Optional[bytes] = ...) -> None: ...

class StageDeltaTableRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class CreateDeltaTableRequest(_message.Message):
    __slots__ = ("namespace", "body")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    namespace: _common_pb2.NamespaceName
    body: bytes
    def __init__(self, namespace: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., body: _Optional[bytes] = ...) -> None: ...

class GetDeltaTableRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class CommitDeltaTableRequest(_message.Message):
    __slots__ = ("table", "body")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    body: bytes
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., body: _Optional[bytes] = ...) -> None: ...

class DropDeltaTableRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class DropDeltaTableResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

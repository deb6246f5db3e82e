from sandur.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlanScanRequest(_message.Message):
    __slots__ = ("table", "body", "with_credentials")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    WITH_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    body: bytes
    with_credentials: bool
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., body: _Optional[bytes] = ..., with_credentials: _Optional[bool] = ...) -> None: ...

class PlanScanResponse(_message.Message):
    __slots__ = ("plan_id", "tasks", "storage_credentials")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    tasks: bytes
    storage_credentials: _containers.RepeatedCompositeFieldContainer[_common_pb2.StorageCredential]
    def __init__(self, plan_id: _Optional[str] = ..., tasks: _Optional[bytes] = ..., storage_credentials: _Optional[_Iterable[_Union[_common_pb2.StorageCredential, _Mapping]]] = ...) -> None: ...

class CancelScanRequest(_message.Message):
    __slots__ = ("table", "plan_id")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    plan_id: str
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., plan_id: _Optional[str] = ...) -> None: ...

class CancelScanResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class NamespaceName(_message.Message):
    __slots__ = ("catalog", "levels")
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    catalog: str
    levels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, catalog: _Optional[str] = ..., levels: _Optional[_Iterable[str]] = ...) -> None: ...

class Name(_message.Message):
    __slots__ = ("catalog", "namespace", "name")
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    catalog: str
    namespace: _containers.RepeatedScalarFieldContainer[str]
    name: str
    def __init__(self, catalog: _Optional[str] = ..., namespace: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("size", "token")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    size: int
    token: str
    def __init__(self, size: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class StorageCredential(_message.Message):
    __slots__ = ("prefix", "config", "expires_at_ms")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    config: _containers.ScalarMap[str, str]
    expires_at_ms: int
    def __init__(self, prefix: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...

from google.protobuf import field_mask_pb2 as _field_mask_pb2
from sandur.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ObjectKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECT_KIND_UNSPECIFIED: _ClassVar[ObjectKind]
    OBJECT_KIND_TABLE: _ClassVar[ObjectKind]
    OBJECT_KIND_VIEW: _ClassVar[ObjectKind]
    OBJECT_KIND_VOLUME: _ClassVar[ObjectKind]
    OBJECT_KIND_FUNCTION: _ClassVar[ObjectKind]
    OBJECT_KIND_MODEL: _ClassVar[ObjectKind]

class ObjectFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECT_FORMAT_UNSPECIFIED: _ClassVar[ObjectFormat]
    OBJECT_FORMAT_ICEBERG: _ClassVar[ObjectFormat]
    OBJECT_FORMAT_DELTA: _ClassVar[ObjectFormat]
    OBJECT_FORMAT_UNITY: _ClassVar[ObjectFormat]
OBJECT_KIND_UNSPECIFIED: ObjectKind
OBJECT_KIND_TABLE: ObjectKind
OBJECT_KIND_VIEW: ObjectKind
OBJECT_KIND_VOLUME: ObjectKind
OBJECT_KIND_FUNCTION: ObjectKind
OBJECT_KIND_MODEL: ObjectKind
OBJECT_FORMAT_UNSPECIFIED: ObjectFormat
OBJECT_FORMAT_ICEBERG: ObjectFormat
OBJECT_FORMAT_DELTA: ObjectFormat
OBJECT_FORMAT_UNITY: ObjectFormat

class Catalog(_message.Message):
    __slots__ = ("name", "id", "comment", "properties", "storage_root", "owner", "created_at_ms", "created_by", "updated_at_ms", "updated_by")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    STORAGE_ROOT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    comment: str
    properties: _containers.ScalarMap[str, str]
    storage_root: str
    owner: str
    created_at_ms: int
    created_by: str
    updated_at_ms: int
    updated_by: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., comment: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., storage_root: _Optional[str] = ..., owner: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., created_by: _Optional[str] = ..., updated_at_ms: _Optional[int] = ..., updated_by: _Optional[str] = ...) -> None: ...

class ListCatalogsRequest(_message.Message):
    __slots__ = ("page",)
    PAGE_FIELD_NUMBER: _ClassVar[int]
    page: _common_pb2.Page
    def __init__(self, page: _Optional[_Union[_common_pb2.Page, _Mapping]] = ...) -> None: ...

class ListCatalogsResponse(_message.Message):
    __slots__ = ("catalogs", "next_page_token")
    CATALOGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    catalogs: _containers.RepeatedCompositeFieldContainer[Catalog]
    next_page_token: str
    def __init__(self, catalogs: _Optional[_Iterable[_Union[Catalog, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetCatalogRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CreateCatalogRequest(_message.Message):
    __slots__ = ("name", "comment", "properties", "storage_root")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    STORAGE_ROOT_FIELD_NUMBER: _ClassVar[int]
    name: str
    comment: str
    properties: _containers.ScalarMap[str, str]
    storage_root: str
    def __init__(self, name: _Optional[str] = ..., comment: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., storage_root: _Optional[str] = ...) -> None: ...

class UpdateCatalogRequest(_message.Message):
    __slots__ = ("name", "comment", "properties", "update_mask")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    name: str
    comment: str
    properties: _containers.ScalarMap[str, str]
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, name: _Optional[str] = ..., comment: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class DeleteCatalogRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteCatalogResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Namespace(_message.Message):
    __slots__ = ("name", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.NamespaceName
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ("parent", "page")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    parent: _common_pb2.NamespaceName
    page: _common_pb2.Page
    def __init__(self, parent: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., page: _Optional[_Union[_common_pb2.Page, _Mapping]] = ...) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("namespaces", "next_page_token")
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedCompositeFieldContainer[_common_pb2.NamespaceName]
    next_page_token: str
    def __init__(self, namespaces: _Optional[_Iterable[_Union[_common_pb2.NamespaceName, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetNamespaceRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.NamespaceName
    def __init__(self, name: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ...) -> None: ...

class CreateNamespaceRequest(_message.Message):
    __slots__ = ("name", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.NamespaceName
    properties: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateNamespaceRequest(_message.Message):
    __slots__ = ("name", "properties", "update_mask")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.NamespaceName
    properties: _containers.ScalarMap[str, str]
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, name: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., properties: _Optional[_Mapping[str, str]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class UpdateNamespaceResponse(_message.Message):
    __slots__ = ("updated", "removed", "missing")
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    updated: _containers.RepeatedScalarFieldContainer[str]
    removed: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, updated: _Optional[_Iterable[str]] = ..., removed: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteNamespaceRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.NamespaceName
    def __init__(self, name: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ...) -> None: ...

class DeleteNamespaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DirectoryEntry(_message.Message):
    __slots__ = ("name", "uuid", "kind", "format", "found")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.Name
    uuid: str
    kind: ObjectKind
    format: ObjectFormat
    found: bool
    def __init__(self, name: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., uuid: _Optional[str] = ..., kind: _Optional[_Union[ObjectKind, str]] = ..., format: _Optional[_Union[ObjectFormat, str]] = ..., found: _Optional[bool] = ...) -> None: ...

class ResolveRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[_common_pb2.Name]
    def __init__(self, names: _Optional[_Iterable[_Union[_common_pb2.Name, _Mapping]]] = ...) -> None: ...

class ResolveResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[DirectoryEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[DirectoryEntry, _Mapping]]] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("uuids",)
    UUIDS_FIELD_NUMBER: _ClassVar[int]
    uuids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uuids: _Optional[_Iterable[str]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[DirectoryEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[DirectoryEntry, _Mapping]]] = ...) -> None: ...

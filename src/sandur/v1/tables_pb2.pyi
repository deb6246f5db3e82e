from sandur.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SnapshotSelection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SNAPSHOT_SELECTION_UNSPECIFIED: _ClassVar[SnapshotSelection]
    SNAPSHOT_SELECTION_ALL: _ClassVar[SnapshotSelection]
    SNAPSHOT_SELECTION_REFS: _ClassVar[SnapshotSelection]
SNAPSHOT_SELECTION_UNSPECIFIED: SnapshotSelection
SNAPSHOT_SELECTION_ALL: SnapshotSelection
SNAPSHOT_SELECTION_REFS: SnapshotSelection

class Table(_message.Message):
    __slots__ = ("name", "metadata_location", "metadata", "etag", "not_modified", "stage_id", "storage_credentials", "read_restrictions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_LOCATION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    NOT_MODIFIED_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STORAGE_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    READ_RESTRICTIONS_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.Name
    metadata_location: str
    metadata: bytes
    etag: str
    not_modified: bool
    stage_id: str
    storage_credentials: _containers.RepeatedCompositeFieldContainer[_common_pb2.StorageCredential]
    read_restrictions: bytes
    def __init__(self, name: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., metadata_location: _Optional[str] = ..., metadata: _Optional[bytes] = ..., etag: _Optional[str] = ..., not_modified: _Optional[bool] = ..., stage_id: _Optional[str] = ..., storage_credentials: _Optional[_Iterable[_Union[_common_pb2.StorageCredential, _Mapping]]] = ..., read_restrictions: _Optional[bytes] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = ("namespace", "page")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    namespace: _common_pb2.NamespaceName
    page: _common_pb2.Page
    def __init__(self, namespace: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., page: _Optional[_Union[_common_pb2.Page, _Mapping]] = ...) -> None: ...

class ListTablesResponse(_message.Message):
    __slots__ = ("tables", "next_page_token")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[_common_pb2.Name]
    next_page_token: str
    def __init__(self, tables: _Optional[_Iterable[_Union[_common_pb2.Name, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetTableRequest(_message.Message):
    __slots__ = ("table", "snapshots", "if_none_match", "with_credentials")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    IF_NONE_MATCH_FIELD_NUMBER: _ClassVar[int]
    WITH_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    snapshots: SnapshotSelection
    if_none_match: str
    with_credentials: bool
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., snapshots: _Optional[_Union[SnapshotSelection, str]] = ..., if_none_match: _Optional[str] = ..., with_credentials: _Optional[bool] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("namespace", "body", "with_credentials")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    WITH_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    namespace: _common_pb2.NamespaceName
    body: bytes
    with_credentials: bool
    def __init__(self, namespace: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., body: _Optional[bytes] = ..., with_credentials: _Optional[bool] = ...) -> None: ...

class StageTableRequest(_message.Message):
    __slots__ = ("namespace", "body", "with_credentials", "stage_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    WITH_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: _common_pb2.NamespaceName
    body: bytes
    with_credentials: bool
    stage_id: str
    def __init__(self, namespace: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., body: _Optional[bytes] = ..., with_credentials: _Optional[bool] = ..., stage_id: _Optional[str] = ...) -> None: ...

class RegisterTableRequest(_message.Message):
    __slots__ = ("table", "metadata_location", "overwrite", "with_credentials")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    METADATA_LOCATION_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    WITH_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    metadata_location: str
    overwrite: bool
    with_credentials: bool
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., metadata_location: _Optional[str] = ..., overwrite: _Optional[bool] = ..., with_credentials: _Optional[bool] = ...) -> None: ...

class RenameTableRequest(_message.Message):
    __slots__ = ("source", "destination")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    source: _common_pb2.Name
    destination: _common_pb2.Name
    def __init__(self, source: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., destination: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class RenameTableResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropTableRequest(_message.Message):
    __slots__ = ("table", "purge")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PURGE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    purge: bool
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., purge: _Optional[bool] = ...) -> None: ...

class DropTableResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommitTableRequest(_message.Message):
    __slots__ = ("table", "body")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    body: bytes
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., body: _Optional[bytes] = ...) -> None: ...

class CommitTransactionRequest(_message.Message):
    __slots__ = ("catalog", "body")
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    catalog: str
    body: bytes
    def __init__(self, catalog: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class CommitTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCredentialsRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class GetCredentialsResponse(_message.Message):
    __slots__ = ("storage_credentials",)
    STORAGE_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    storage_credentials: _containers.RepeatedCompositeFieldContainer[_common_pb2.StorageCredential]
    def __init__(self, storage_credentials: _Optional[_Iterable[_Union[_common_pb2.StorageCredential, _Mapping]]] = ...) -> None: ...

class PartitionField(_message.Message):
    __slots__ = ("source_id", "field_id", "name", "transform", "source_ids")
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    FIELD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_FIELD_NUMBER: _ClassVar[int]
    SOURCE_IDS_FIELD_NUMBER: _ClassVar[int]
    source_id: int
    field_id: int
    name: str
    transform: str
    source_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, source_id: _Optional[int] = ..., field_id: _Optional[int] = ..., name: _Optional[str] = ..., transform: _Optional[str] = ..., source_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionSpec(_message.Message):
    __slots__ = ("spec_id", "spec_name", "is_default", "fields", "snapshot_id", "timestamp_ms", "ingested_at_ms")
    SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_NAME_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    INGESTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    spec_id: int
    spec_name: str
    is_default: bool
    fields: _containers.RepeatedCompositeFieldContainer[PartitionField]
    snapshot_id: int
    timestamp_ms: int
    ingested_at_ms: int
    def __init__(self, spec_id: _Optional[int] = ..., spec_name: _Optional[str] = ..., is_default: _Optional[bool] = ..., fields: _Optional[_Iterable[_Union[PartitionField, _Mapping]]] = ..., snapshot_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., ingested_at_ms: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("snapshot_id", "parent_snapshot_id", "timestamp_ms", "ingested_at_ms", "sequence_number", "schema_id", "schema", "partition_spec", "manifest_list", "summary", "is_current", "refs")
    class SummaryEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    INGESTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PARTITION_SPEC_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_LIST_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    IS_CURRENT_FIELD_NUMBER: _ClassVar[int]
    REFS_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: int
    parent_snapshot_id: int
    timestamp_ms: int
    ingested_at_ms: int
    sequence_number: int
    schema_id: int
    schema: bytes
    partition_spec: PartitionSpec
    manifest_list: str
    summary: _containers.ScalarMap[str, str]
    is_current: bool
    refs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, snapshot_id: _Optional[int] = ..., parent_snapshot_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., ingested_at_ms: _Optional[int] = ..., sequence_number: _Optional[int] = ..., schema_id: _Optional[int] = ..., schema: _Optional[bytes] = ..., partition_spec: _Optional[_Union[PartitionSpec, _Mapping]] = ..., manifest_list: _Optional[str] = ..., summary: _Optional[_Mapping[str, str]] = ..., is_current: _Optional[bool] = ..., refs: _Optional[_Iterable[str]] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ("schema_id", "schema", "snapshot_id", "timestamp_ms", "ingested_at_ms")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    INGESTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    schema: bytes
    snapshot_id: int
    timestamp_ms: int
    ingested_at_ms: int
    def __init__(self, schema_id: _Optional[int] = ..., schema: _Optional[bytes] = ..., snapshot_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., ingested_at_ms: _Optional[int] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("snapshots",)
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    def __init__(self, snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ...) -> None: ...

class ListSchemasRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class ListSchemasResponse(_message.Message):
    __slots__ = ("schemas",)
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    schemas: _containers.RepeatedCompositeFieldContainer[Schema]
    def __init__(self, schemas: _Optional[_Iterable[_Union[Schema, _Mapping]]] = ...) -> None: ...

class ListPartitionSpecsRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.Name
    def __init__(self, table: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class ListPartitionSpecsResponse(_message.Message):
    __slots__ = ("partition_specs",)
    PARTITION_SPECS_FIELD_NUMBER: _ClassVar[int]
    partition_specs: _containers.RepeatedCompositeFieldContainer[PartitionSpec]
    def __init__(self, partition_specs: _Optional[_Iterable[_Union[PartitionSpec, _Mapping]]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("name", "metadata_location", "metadata")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_LOCATION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: _common_pb2.Name
    metadata_location: str
    metadata: bytes
    def __init__(self, name: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., metadata_location: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class ListViewsRequest(_message.Message):
    __slots__ = ("namespace", "page")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    namespace: _common_pb2.NamespaceName
    page: _common_pb2.Page
    def __init__(self, namespace: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., page: _Optional[_Union[_common_pb2.Page, _Mapping]] = ...) -> None: ...

class ListViewsResponse(_message.Message):
    __slots__ = ("views", "next_page_token")
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedCompositeFieldContainer[_common_pb2.Name]
    next_page_token: str
    def __init__(self, views: _Optional[_Iterable[_Union[_common_pb2.Name, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetViewRequest(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: _common_pb2.Name
    def __init__(self, view: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class CreateViewRequest(_message.Message):
    __slots__ = ("namespace", "body")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    namespace: _common_pb2.NamespaceName
    body: bytes
    def __init__(self, namespace: _Optional[_Union[_common_pb2.NamespaceName, _Mapping]] = ..., body: _Optional[bytes] = ...) -> None: ...

class RegisterViewRequest(_message.Message):
    __slots__ = ("view", "metadata_location")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    METADATA_LOCATION_FIELD_NUMBER: _ClassVar[int]
    view: _common_pb2.Name
    metadata_location: str
    def __init__(self, view: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., metadata_location: _Optional[str] = ...) -> None: ...

class ReplaceViewRequest(_message.Message):
    __slots__ = ("view", "body")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    view: _common_pb2.Name
    body: bytes
    def __init__(self, view: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., body: _Optional[bytes] = ...) -> None: ...

class RenameViewRequest(_message.Message):
    __slots__ = ("source", "destination")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    source: _common_pb2.Name
    destination: _common_pb2.Name
    def __init__(self, source: _Optional[_Union[_common_pb2.Name, _Mapping]] = ..., destination: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class RenameViewResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropViewRequest(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: _common_pb2.Name
    def __init__(self, view: _Optional[_Union[_common_pb2.Name, _Mapping]] = ...) -> None: ...

class DropViewResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

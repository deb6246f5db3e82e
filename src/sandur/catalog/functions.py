"""Functions and the dependencies of functions and views, as clients of Unity Catalog describe them."""

from typing import Literal

import msgspec


class FunctionParameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    type_text: str
    type_name: str
    type_json: str
    position: int
    type_precision: int | None = None
    type_scale: int | None = None
    type_interval_type: str | None = None
    parameter_mode: Literal["IN"] | None = None
    parameter_type: Literal["PARAM", "COLUMN"] | None = None
    parameter_default: str | None = None
    comment: str | None = None


class FunctionParameters(msgspec.Struct, frozen=True, omit_defaults=True):
    parameters: tuple[FunctionParameter, ...] | None = None


class TableDependency(msgspec.Struct, frozen=True):
    table_full_name: str


class FunctionDependency(msgspec.Struct, frozen=True):
    function_full_name: str


class Dependency(msgspec.Struct, frozen=True, omit_defaults=True):
    table: TableDependency | None = None
    function: FunctionDependency | None = None


class DependencyList(msgspec.Struct, frozen=True, omit_defaults=True):
    dependencies: tuple[Dependency, ...] | None = None


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function as the client that created it described it."""

    input_params: FunctionParameters
    data_type: str
    full_data_type: str
    routine_body: Literal["SQL", "EXTERNAL"]
    routine_definition: str
    parameter_style: Literal["S"]
    is_deterministic: bool
    sql_data_access: Literal["CONTAINS_SQL", "READS_SQL_DATA", "NO_SQL"]
    is_null_call: bool
    security_type: Literal["DEFINER"]
    specific_name: str
    return_params: FunctionParameters | None = None
    routine_dependencies: DependencyList | None = None
    properties: str | None = None
    external_language: str | None = None

"""OpenLineage events in the shape in which the Spark agent sends them."""

from typing import Any, Final

Json = dict[str, Any]

PRODUCER: Final = "https://github.com/OpenLineage/OpenLineage/tree/1.53.0/integration/spark"
_SPEC: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
APPLICATION: Final = "01a1ec7f-0000-7000-8000-000000000000"


def run_id(number: int) -> str:
    return f"01a1ec7f-0000-7000-8000-{number:012d}"


def time_of(second: float) -> str:
    return f"2026-11-18T02:{int(second // 60):02d}:{second % 60:06.3f}Z"


def dataset(
    name: str,
    *,
    server: str = "",
    location: str = "",
    version: object = None,
    columns: Json | None = None,
    touched: list[Json] | None = None,
    **facets: Any,
) -> Json:
    """A table as Iceberg's catalog names it: by its place, with the name as a symlink."""
    given: Json = dict(facets)
    if server:
        given["symlinks"] = {"identifiers": [{"namespace": server, "name": name, "type": "TABLE"}]}
        given["catalog"] = {"framework": "iceberg", "type": "rest", "name": "lake", "warehouseUri": "main"}
    if version is not None:
        given["version"] = {"datasetVersion": str(version)}
    if columns is not None or touched is not None:
        given["columnLineage"] = {"fields": columns or {}, "dataset": touched or []}
    scheme, _, path = location.partition("://")
    if not location:
        return {"namespace": "file", "name": f"main/{name.replace('.', '/')}", "facets": given}
    if scheme == "file":
        return {"namespace": "file", "name": path, "facets": given}
    bucket, _, folder = path.partition("/")
    return {"namespace": f"{scheme}://{bucket}", "name": folder, "facets": given}


def input_field(table: Json, field: str, kind: str = "DIRECT", subtype: str = "IDENTITY") -> Json:
    change = {"type": kind, "subtype": subtype, "description": "", "masking": False}
    return {"namespace": table["namespace"], "name": table["name"], "field": field, "transformations": [change]}


def run_event(
    number: int,
    kind: str,
    second: float,
    *,
    job: str = "append_data",
    inputs: list[Json] | None = None,
    outputs: list[Json] | None = None,
    **run_facets: Any,
) -> Json:
    """An event of one statement of the application `nightly`."""
    parent = {"run": {"runId": APPLICATION}, "job": {"namespace": "etl", "name": "nightly"}}
    return {
        "eventTime": time_of(second),
        "producer": PRODUCER,
        "schemaURL": f"{_SPEC}RunEvent",
        "eventType": kind,
        "run": {"runId": run_id(number), "facets": {"parent": parent, **run_facets}},
        "job": {"namespace": "etl", "name": f"nightly.{job}", "facets": {"jobType": {"integration": "SPARK"}}},
        "inputs": inputs or [],
        "outputs": outputs or [],
    }


def job_event(name: str, inputs: list[Json], outputs: list[Json], second: float = 0) -> Json:
    return {
        "eventTime": time_of(second),
        "producer": PRODUCER,
        "schemaURL": f"{_SPEC}JobEvent",
        "job": {"namespace": "etl", "name": name},
        "inputs": inputs,
        "outputs": outputs,
    }


def dataset_event(about: Json, second: float = 0) -> Json:
    return {"eventTime": time_of(second), "producer": PRODUCER, "schemaURL": f"{_SPEC}DatasetEvent", "dataset": about}

"""Random Iceberg schemas: of every type, evolved from another, or with a typical mistake of clients."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random

from tests.differential.outcomes import Json, JsonObject

PRIMITIVES = (
    "boolean", "int", "long", "float", "double", "decimal(9,2)", "decimal(38, 10)", "date", "time", "timestamp",
    "timestamptz", "string", "uuid", "fixed[16]", "binary",
)  # fmt: skip
PRIMITIVES_V3 = (
    "timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geometry(srid:3857)", "geography",
    "geography(srid:4326, karney)",
)  # fmt: skip
PROMOTED = {"int": "long", "float": "double", "decimal(9,2)": "decimal(18,2)"}
DEFAULTS: dict[str, Json] = {
    "boolean": True, "int": 34, "long": 4900000000, "float": 12.25, "double": -0.5, "decimal(9,2)": "14.20",
    "date": "2024-12-17", "time": "23:59:59.999999", "timestamp": "2024-12-17T23:59:59.999999",
    "timestamptz": "2024-12-17T23:59:59.999999+00:00", "timestamp_ns": "2024-12-17T23:59:59.999999999",
    "timestamptz_ns": "2024-12-17T23:59:59.999999999+00:00", "string": "iceberg",
    "uuid": "eb26bdb1-a1d8-4aa6-990e-da940875492c", "fixed[16]": "000102030405060708090a0b0c0d0e0f",
    "binary": "78797a",
}  # fmt: skip
NAMES = ("id", "data", "ts", "category", "point", "tags", "amount", "région", "a.b", "Data", "v", "w")


class FieldIds:
    """Hands out field ids above those in use."""

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last


def random_schema(rng: Random, *, version: int, ids: FieldIds, columns_max: int = 5) -> JsonObject:
    """A valid schema with at least one column that can be a partition source."""
    fields = [{"id": ids.next(), "name": "id", "required": rng.random() < 0.7, "type": rng.choice(("long", "string"))}]
    names = rng.sample(NAMES[1:], k=rng.randint(0, columns_max - 1))
    fields.extend(random_field(rng, name, version=version, ids=ids, depth=2) for name in names)
    schema: JsonObject = {"type": "struct", "schema-id": rng.choice((0, 0, 1, 7)), "fields": fields}
    if rng.random() < 0.3:
        schema["identifier-field-ids"] = [f["id"] for f in fields if can_identify(f)][: rng.randint(0, 2)]
    return schema


def random_field(rng: Random, name: str, *, version: int, ids: FieldIds, depth: int) -> JsonObject:
    field: JsonObject = {"id": ids.next(), "name": name, "required": rng.random() < 0.4}
    field["type"] = random_type(rng, version=version, ids=ids, depth=depth)
    if field["type"] == "unknown":
        field["required"] = False
    if rng.random() < 0.2:
        field["doc"] = rng.choice(("a column", "", "größer als 🧊"))
    default = DEFAULTS.get(field["type"]) if isinstance(field["type"], str) else None
    if version >= 3 and default is not None and rng.random() < 0.25:
        field["initial-default"] = default
        field["write-default"] = default
    return field


def random_type(rng: Random, *, version: int, ids: FieldIds, depth: int) -> Json:
    roll = rng.random()
    if depth == 0 or roll < 0.7:
        return rng.choice(PRIMITIVES + (PRIMITIVES_V3 if version >= 3 else ()))
    if roll < 0.8:
        names = rng.sample(NAMES, k=rng.randint(1, 3))
        inner = [random_field(rng, name, version=version, ids=ids, depth=depth - 1) for name in names]
        return {"type": "struct", "fields": inner}
    if roll < 0.9:
        element_id = ids.next()
        element = random_type(rng, version=version, ids=ids, depth=depth - 1)
        required = rng.random() < 0.5 and element != "unknown"
        return {"type": "list", "element-id": element_id, "element": element, "element-required": required}
    key_id, value_id = ids.next(), ids.next()
    value = random_type(rng, version=version, ids=ids, depth=depth - 1)
    return {
        "type": "map",
        "key-id": key_id,
        "key": rng.choice(("string", "int", "uuid")),
        "value-id": value_id,
        "value": value,
        "value-required": rng.random() < 0.5 and value != "unknown",
    }


def fields_of(schema: Json) -> list[JsonObject]:
    """The columns of a schema; empty if it is too broken to have any."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return fields if isinstance(fields, list) else []


def primitive_fields(schema: Json) -> list[JsonObject]:
    """The top-level columns of a primitive type, and those of structs directly below."""
    return list(_primitives(fields_of(schema)))


def _primitives(fields: list[JsonObject]) -> Iterator[JsonObject]:
    for field in fields:
        kind = field.get("type")
        if isinstance(kind, str):
            yield field
        elif isinstance(kind, dict) and kind.get("type") == "struct":
            yield from _primitives(fields_of(kind))


def can_identify(field: JsonObject) -> bool:
    kind = field.get("type")
    return bool(field.get("required")) and isinstance(kind, str) and kind not in {"float", "double", "variant"}


def evolved_schema(rng: Random, schema: JsonObject, *, version: int, ids: FieldIds) -> JsonObject:
    """The schema after one or two of the changes that clients make."""
    result = deepcopy(schema)
    for _ in range(rng.randint(1, 2)):
        rng.choice(_EVOLUTIONS)(rng, result, version, ids)
    result["schema-id"] = rng.choice((0, 1, result.get("schema-id", 0), 99))
    return result


def _add_column(rng: Random, schema: JsonObject, version: int, ids: FieldIds) -> None:
    field = random_field(rng, f"added_{ids.last}", version=version, ids=ids, depth=1)
    schema["fields"].insert(rng.randint(0, len(schema["fields"])), field)


def _add_nested_column(rng: Random, schema: JsonObject, version: int, ids: FieldIds) -> None:
    structs = [f["type"] for f in schema["fields"] if isinstance(f["type"], dict) and f["type"]["type"] == "struct"]
    if structs:
        name = f"inner_{ids.last}"
        rng.choice(structs)["fields"].append(random_field(rng, name, version=version, ids=ids, depth=0))


def _drop_column(rng: Random, schema: JsonObject, _version: int, _ids: FieldIds) -> None:
    if len(schema["fields"]) > 1:
        dropped = schema["fields"].pop(rng.randrange(len(schema["fields"])))
        kept = [i for i in schema.get("identifier-field-ids", ()) if i != dropped["id"]]
        if "identifier-field-ids" in schema:
            schema["identifier-field-ids"] = kept


def _rename_column(rng: Random, schema: JsonObject, _version: int, ids: FieldIds) -> None:
    rng.choice(schema["fields"])["name"] = f"renamed_{ids.last}_{rng.randint(0, 999)}"


def _promote_column(rng: Random, schema: JsonObject, _version: int, _ids: FieldIds) -> None:
    field = rng.choice(schema["fields"])
    if isinstance(field["type"], str) and "initial-default" not in field:
        field["type"] = PROMOTED.get(field["type"], field["type"])


def _document_column(rng: Random, schema: JsonObject, _version: int, _ids: FieldIds) -> None:
    rng.choice(schema["fields"])["doc"] = f"doc {rng.randint(0, 3)}"


def _relax_column(rng: Random, schema: JsonObject, _version: int, _ids: FieldIds) -> None:
    field = rng.choice(schema["fields"])
    if field["id"] not in schema.get("identifier-field-ids", ()):
        field["required"] = False


def _identify_rows(rng: Random, schema: JsonObject, _version: int, _ids: FieldIds) -> None:
    able = [f["id"] for f in schema["fields"] if can_identify(f)]
    schema["identifier-field-ids"] = rng.sample(able, k=rng.randint(0, len(able)))


def _shuffle_columns(rng: Random, schema: JsonObject, _version: int, _ids: FieldIds) -> None:
    rng.shuffle(schema["fields"])


def _set_write_default(rng: Random, schema: JsonObject, _version: int, _ids: FieldIds) -> None:
    field = rng.choice(schema["fields"])
    if isinstance(field["type"], str) and field["type"] in DEFAULTS:
        field["write-default"] = DEFAULTS[field["type"]]


Evolution = Callable[[Random, JsonObject, int, FieldIds], None]
_EVOLUTIONS: tuple[Evolution, ...] = (
    _add_column, _add_column, _add_column, _add_nested_column, _drop_column, _rename_column, _promote_column,
    _document_column, _relax_column, _identify_rows, _shuffle_columns, _set_write_default,
)  # fmt: skip


def broken_schema(rng: Random, schema: JsonObject, *, ids: FieldIds) -> JsonObject:
    """The schema with one mistake; some are mistakes only below v3."""
    result = deepcopy(schema)
    rng.choice(_FAULTS)(rng, result, ids)
    return result


def _repeat_id(rng: Random, schema: JsonObject, _ids: FieldIds) -> None:
    schema["fields"].append({**rng.choice(schema["fields"]), "name": "same_id_again"})


def _repeat_name(rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    nested = [field for field in schema["fields"] if isinstance(field.get("type"), dict)]
    schema["fields"].append({**rng.choice(nested or schema["fields"]), "id": ids.next()})


def _new_type(rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    schema["fields"].append(
        {"id": ids.next(), "name": "novel", "required": False, "type": rng.choice(PRIMITIVES_V3)},
    )


def _nested_new_type(rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    list_id, element_id = ids.next(), ids.next()
    kind = {"type": "list", "element-id": element_id, "element": rng.choice(PRIMITIVES_V3), "element-required": False}
    schema["fields"].append({"id": list_id, "name": "novels", "required": False, "type": kind})


def _initial_default(_rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    field = {"id": ids.next(), "name": "dflt", "required": False, "type": "int", "initial-default": 3}
    schema["fields"].append(field)


def _wrong_default(rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    kind, value = rng.choice((("int", "three"), ("date", "yesterday"), ("uuid", 5), ("boolean", "no"), ("variant", 1)))
    name = rng.choice(("initial-default", "write-default"))
    schema["fields"].append({"id": ids.next(), "name": "dflt", "required": False, "type": kind, name: value})


def _unknown_type(rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    kind = rng.choice(("decimal(50,2)", "integer", "fixed[x]", "decimal", "fixed[-1]", "interval"))
    schema["fields"].append({"id": ids.next(), "name": "odd", "required": False, "type": kind})


def _identifier(rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    optional = {"id": ids.next(), "name": "opt", "required": False, "type": "int"}
    floating = {"id": ids.next(), "name": "dbl", "required": True, "type": "double"}
    in_struct = {"id": ids.next(), "name": "in", "required": True, "type": "int"}
    struct = {"id": ids.next(), "name": "st", "required": False, "type": {"type": "struct", "fields": [in_struct]}}
    schema["fields"] += [optional, floating, struct]
    wrong = rng.choice((optional, floating, in_struct, struct, {"id": 9999}))
    schema["identifier-field-ids"] = [wrong["id"]]


def _missing_part(rng: Random, schema: JsonObject, _ids: FieldIds) -> None:
    field = rng.choice(schema["fields"])
    del field[rng.choice(("id", "name", "type", "required"))]


def _required_unknown(_rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    schema["fields"].append({"id": ids.next(), "name": "nothing", "required": True, "type": "unknown"})


def _missing_element(rng: Random, schema: JsonObject, ids: FieldIds) -> None:
    kind = {"type": "list", "element-id": ids.next(), "element": "int", "element-required": False}
    del kind[rng.choice(("element-id", "element", "element-required"))]
    schema["fields"].append({"id": ids.next(), "name": "holes", "required": False, "type": kind})


Fault = Callable[[Random, JsonObject, FieldIds], None]
_FAULTS: tuple[Fault, ...] = (
    _repeat_id, _repeat_name, _new_type, _nested_new_type, _initial_default, _wrong_default, _unknown_type,
    _identifier, _identifier, _missing_part, _required_unknown, _missing_element,
)  # fmt: skip

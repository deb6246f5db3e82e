"""Keys: every key can be parsed, and no two objects share a key."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Scope
from sandur.errors import BadRequest
from sandur.storage.keys import decode_levels, decode_segment, encode_levels, encode_segment, split_path, validate_key
from sandur.storage.layout import TENANT_PREFIX, Layout, ReceiptKey, layout_of

TEXTS = st.text(st.characters(exclude_characters="\x1f"), max_size=60)
LEVELS = st.lists(TEXTS, min_size=1, max_size=4).map(tuple)
LONG = "näme/.." * 200
LAYOUT = Layout()


@given(text=st.text(max_size=2_000))
@example(text="")
@example(text=".empty")
@example(text="..")
@example(text="~")
@example(text="a~/b")
@example(text="%1F")
@example(text="\x1f")
@example(text="x" * 200)
@example(text="x" * 201)
@example(text=LONG)
@example(text="\ud800")
def test_every_text_can_be_decoded_again(text: str) -> None:
    path = encode_segment(text)

    assert len(split_path(path)) == 1
    assert decode_segment(split_path(path)[0]) == text


@given(levels=LEVELS)
@example(levels=("",))
@example(levels=("", ""))
@example(levels=("a", ""))
@example(levels=("%1F", "a.b", "a/b"))
@example(levels=(LONG, LONG))
def test_every_namespace_can_be_decoded_again(levels: tuple[str, ...]) -> None:
    path = encode_levels(levels)

    assert decode_levels(split_path(path)[0]) == levels


@given(first=LEVELS, second=LEVELS)
@example(first=("a", "b"), second=("a%1Fb",))
@example(first=("",), second=(".empty",))
def test_different_namespaces_have_different_segments(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    assert (encode_levels(first) == encode_levels(second)) == (first == second)


def test_a_level_that_contains_the_separator_is_refused() -> None:
    with pytest.raises(BadRequest, match="0x1F"):
        encode_levels(("a\x1fb",))


@given(text=st.text(max_size=300))
def test_an_encoded_text_is_a_key_every_store_accepts(text: str) -> None:
    path = encode_segment(text)

    assert path.isascii()
    assert all(len(segment) <= 255 for segment in path.split("/"))
    assert not any(segment.startswith(".") for segment in path.split("/") if segment != ".empty")
    if len(path) <= 900:
        assert validate_key(path) == path


@given(catalog=TEXTS, levels=LEVELS, name=TEXTS)
def test_keys_of_names_can_be_read_back(catalog: str, levels: tuple[str, ...], name: str) -> None:
    layout = Layout(tenant=name, workspace=catalog)
    identifier = Identifier(catalog, levels, name)

    assert layout.parse_name(layout.name(identifier)) == identifier
    assert layout.parse_namespace(layout.namespace(identifier.namespace)) == identifier.namespace
    assert layout.parse_catalog(layout.catalog(catalog)) == catalog
    assert layout.parse_stage(layout.stage(identifier, "u")) == (identifier, "u")
    assert layout.parse_mark(layout.mark(catalog, name)) == (catalog, name)


@given(text=TEXTS)
def test_keys_by_id_can_be_read_back(text: str) -> None:
    assert LAYOUT.parse_pointer(LAYOUT.pointer(text)) == text
    assert LAYOUT.parse_delta_table(LAYOUT.delta_table(text)) == text
    assert LAYOUT.parse_transaction(LAYOUT.transaction(text)) == text
    receipt = LAYOUT.receipt("2026-01-02", "iceberg", text)
    assert LAYOUT.parse_receipt(receipt) == ReceiptKey("2026-01-02", "iceberg", "committed", text)
    assert LAYOUT.parse_purge_order(LAYOUT.purge_order(text, "drop")) == (text, "drop")
    assert LAYOUT.parse_maintenance_request(LAYOUT.maintenance_request(text)) == text
    assert LAYOUT.purge_order("u", text).startswith(LAYOUT.purge_orders_of("u"))


@given(catalog=TEXTS, levels=LEVELS, name=TEXTS)
def test_a_key_is_in_the_folder_that_lists_it(catalog: str, levels: tuple[str, ...], name: str) -> None:
    identifier = Identifier(catalog, levels, name)

    assert LAYOUT.name(identifier).startswith(LAYOUT.names_folder(identifier.namespace))
    assert LAYOUT.namespace(identifier.namespace).startswith(LAYOUT.namespaces_folder(catalog))
    assert LAYOUT.mark(catalog, name).startswith(LAYOUT.marks_folder(catalog))
    assert LAYOUT.pointer(name).startswith(LAYOUT.pointers_folder())


def test_the_keys_are_the_documented_ones() -> None:
    root = "tenant=default/workspace=default/_catalog/"
    expected = {
        LAYOUT.catalog("main"): "catalogs/main.json",
        LAYOUT.namespace(Namespace("main", ("a", "b.c"))): "namespaces/main/a%1Fb.c.json",
        LAYOUT.name(Identifier("main", ("a", "b"), "t")): "names/main/a%1Fb/t.json",
        LAYOUT.pointer("u"): "iceberg_pointers/u.json",
        LAYOUT.delta_table("u"): "delta_tables/u.json",
        LAYOUT.commit_claim("u", "abcd"): "iceberg_idempotency/u/ab/abcd.json",
        LAYOUT.claim("create-table", "abcd"): "idempotency/create-table/ab/abcd.json",
        LAYOUT.transaction("x"): "iceberg_transactions/x.json",
        LAYOUT.stage(Identifier("main", ("a",), "t"), "u"): "iceberg_staged/main/a/t/u.json",
        LAYOUT.receipt("2026-01-02", "iceberg", "k"): "events/2026-01-02/iceberg/committed/k.json",
        LAYOUT.receipt("2026-01-02", "delta", "k"): "events/2026-01-02/delta/committed/k.json",
        LAYOUT.list_index(Scope("catalogs")): "index/catalogs.v1.json",
        LAYOUT.list_index(Scope("schemas", "main")): "index/schemas/main.v1.json",
        LAYOUT.list_index(Scope("tables", "main", ("a", "b"))): "index/tables/main/a%1Fb.v1.json",
        LAYOUT.list_index(Scope("schemas", "main", ("a", "b"))): "index/namespaces/main/a%1Fb.v1.json",
        LAYOUT.index_segment(Scope("catalogs"), "i"): f"index/segments/{Scope('catalogs').hash}/i.json",
        LAYOUT.mark("s", "o"): "index/marks/s/o",
        LAYOUT.core_manifest(): "core/manifest.json",
        LAYOUT.core_snapshot("a", "tables.parquet"): "core/snapshots/a/tables.parquet",
        LAYOUT.operational("jobs", "compact"): "operational/jobs/compact.json",
    }

    assert {key: root + path for key, path in expected.items()} == {key: key for key in expected}


@given(catalog=TEXTS, levels=LEVELS, child=TEXTS)
def test_exactly_the_keys_below_a_namespace_share_its_prefix(catalog: str, levels: tuple[str, ...], child: str) -> None:
    parent, below = Namespace(catalog, levels), Namespace(catalog, (*levels, child))
    beginning = LAYOUT.namespaces_below(parent)

    assert LAYOUT.namespace(below).startswith(beginning)
    assert not LAYOUT.namespace(parent).startswith(beginning)
    assert not LAYOUT.namespace(Namespace(catalog, (*levels[:-1], levels[-1] + child + "y"))).startswith(beginning)


def test_segments_can_be_read_back() -> None:
    scope = Scope("tables", "main", ("a",))

    assert LAYOUT.parse_index_segment(LAYOUT.index_segment(scope, "i")) == (scope.hash, "i")
    assert LAYOUT.index_segment(scope, "i").startswith(LAYOUT.index_segments_folder(scope))


def test_tenants_and_workspaces_do_not_share_keys() -> None:
    assert Layout("a", "b").root == "tenant=a/workspace=b/_catalog/"
    assert Layout("a/workspace=b", "c").root != Layout("a", "b/c").root


@given(tenant=TEXTS, workspace=TEXTS, other=TEXTS)
@example(tenant="a", workspace="w", other="w0")
@example(tenant="a", workspace="w", other="w-")
@example(tenant=LONG, workspace="", other=LONG)
def test_the_workspace_of_every_key_can_be_parsed(tenant: str, workspace: str, other: str) -> None:
    layout, beside = Layout(tenant, workspace), Layout(tenant, other)
    key, beyond = layout.catalog("x"), beside.catalog("x")

    assert layout_of(key) == layout
    assert TENANT_PREFIX < key < layout.end
    assert layout == beside or not key < beyond < layout.end


@pytest.mark.parametrize(
    "key", ["", "x", "tenant", "tenant=a", "tenant=a/x", "tables/a/b", "_probe/tenant=a/workspace=b"]
)
def test_a_key_without_a_tenant_has_no_workspace(key: str) -> None:
    assert layout_of(key) is None


@pytest.mark.parametrize(
    "key", ["", "x", LAYOUT.root, LAYOUT.pointer("u"), LAYOUT.name(Identifier("main", ("a",), "t")) + "x"]
)
def test_a_key_of_another_kind_is_not_parsed_as_a_name(key: str) -> None:
    with pytest.raises(BadRequest, match="does not have the form"):
        LAYOUT.parse_name(key)


@given(uuid=TEXTS)
def test_the_keys_of_delta_tables_and_stages_can_be_read_back(uuid: str) -> None:
    assert LAYOUT.parse_delta_table(LAYOUT.delta_table(uuid)) == uuid
    assert LAYOUT.parse_delta_stage(LAYOUT.delta_stage(uuid)) == uuid
    assert LAYOUT.delta_table(uuid) != LAYOUT.delta_stage(uuid)

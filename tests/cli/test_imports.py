"""`sandur import`: from another server, from a Unity Catalog server, and from a folder."""

import hashlib
import hmac
import json
import re
import shlex
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.cli.commands import Done, User
from tests.server.logins import ADMIN_SECRET
from tests.server.process import ServerProcess, server_process

COLUMNS = pa.schema({"id": pa.int64()})
ROWS = pa.table({"id": [1, 2]})


def rows_of(done: Done) -> list[tuple[str, str]]:
    return [(one["action"], one["name"]) for one in json.loads(done.out)]


def catalog_of(server: ServerProcess, warehouse: str = "main", **properties: str) -> Catalog:
    return load_catalog("c", type="rest", uri=server.url, warehouse=warehouse, **properties)


def files_below(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("source")
    allow = ("--allow-location", f"file://{folder}/outside")
    with server_process(folder, *allow, fsync="never", janitors="false") as running:
        user = User(tmp_path_factory.mktemp("maker"))
        catalog = catalog_of(running)
        catalog.create_namespace("sales", {"team": "one"})
        catalog.create_namespace(("sales", "europe"))
        catalog.create_table("sales.orders", COLUMNS).append(ROWS)
        catalog.create_table("sales.europe.orders", COLUMNS)
        made = "create view main.sales.recent --sql 'select 1 as id' --columns 'id INT' --comment new"
        _run(user, made, running)
        external = f"file://{running.folder}/outside"
        _run(user, f"create volume main.sales.files --location {external}/files", running)
        _run(user, "create volume main.sales.managed", running)
        _run(user, "create function main.sales.plus --definition 'x + 1' --returns INT --parameter 'x INT'", running)
        delta = f"--columns 'id BIGINT' --location {external}/events"
        _run(user, f"delta create main.sales.events {delta}", running)
        _run(user, "delta create main.sales.owned --columns 'id BIGINT'", running)
        yield running


def _run(user: User, command: str, server: ServerProcess) -> None:
    done = user.run(*shlex.split(command), "--server", server.url)
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def target(source: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that may use the files of the source. Every test imports into a catalog of its own."""
    allow = ("--allow-location", f"file://{source.folder}")
    with server_process(tmp_path_factory.mktemp("target"), *allow, fsync="never", janitors="false") as running:
        yield running


def test_a_catalog_is_imported_and_a_second_run_changes_nothing(
    source: ServerProcess, target: ServerProcess, user: User
) -> None:
    before = files_below(source.folder / "data" / "tables")
    command = ("import", "rest", source.url, "--warehouse", "main", "--into", "lake", "--server", target.url)

    planned = user.run(*command, "--dry-run", "--json")
    absent = user.run("show", "lake", "--server", target.url)
    imported = user.run(*command, "--yes", "--json")
    again = user.run(*command, "--yes", "--json")

    wanted = {
        ("create", "lake"),
        ("create", "lake.sales"),
        ("create", "lake.sales.europe"),
        ("register", "lake.sales.orders"),
        ("register", "lake.sales.europe.orders"),
        ("create", "lake.sales.recent"),
    }
    assert set(rows_of(planned)) == set(rows_of(imported)) == wanted, imported.err
    assert absent.code == 3
    assert {action for action, _ in rows_of(again)} == {"same"}, again.out
    lake = catalog_of(target, "lake")
    assert lake.load_table("sales.orders").scan().to_arrow().to_pylist() == ROWS.to_pylist()
    assert lake.load_namespace_properties("sales")["team"] == "one"
    shown = user.run("show", "lake.sales.recent", "--server", target.url, "--json").json
    assert (shown["kind"], shown["comment"]) == ("view", "new")
    assert files_below(source.folder / "data" / "tables") == before


def test_a_table_follows_the_source_and_is_never_taken_back(
    source: ServerProcess, target: ServerProcess, user: User
) -> None:
    own = catalog_of(source)
    own.create_namespace_if_not_exists("moving")
    table = own.create_table("moving.orders", COLUMNS)
    chosen = ("--warehouse", "main", "--namespace", "moving", "--into", "moved", "--server", target.url)
    command = ("import", "rest", source.url, *chosen, "--json", "--yes")

    def action(*flags: str) -> str:
        return next(action for action, name in rows_of(user.run(*command, *flags)) if name.endswith(".orders"))

    assert action() == "register"
    table.append(ROWS)
    assert action() == "behind"
    assert action("--update") == "update"
    lake = catalog_of(target, "moved")
    lake.load_table("moving.orders").append(ROWS)
    assert action("--update") == "ahead"
    assert len(lake.load_table("moving.orders").scan().to_arrow()) == 4
    own.load_table("moving.orders").append(ROWS)
    done = user.run(*command, "--update")
    assert ("conflict", "moved.moving.orders") in rows_of(done)
    assert done.code == 5
    assert len(lake.load_table("moving.orders").scan().to_arrow()) == 4


def test_a_table_whose_log_has_forgotten_the_import_follows_the_source(
    source: ServerProcess, target: ServerProcess, user: User
) -> None:
    """After 100 commits, or at once at Nessie, which keeps no log of metadata files."""
    own = catalog_of(source)
    own.create_namespace_if_not_exists("forgetful")
    table = own.create_table("forgetful.orders", COLUMNS, properties={"write.metadata.previous-versions-max": "1"})
    chosen = ("--warehouse", "main", "--namespace", "forgetful", "--into", "forgotten", "--server", target.url)
    command = ("import", "rest", source.url, *chosen, "--json", "--yes")

    def action(*flags: str) -> str:
        return next(action for action, name in rows_of(user.run(*command, *flags)) if name.endswith(".orders"))

    assert action() == "register"
    for _ in range(3):
        table.append(ROWS)
    assert action() == "behind"
    assert action("--update") == "update"
    assert action() == "same"
    for _ in range(3):
        table.append(ROWS)
    assert action("--update") == "update"
    moved = catalog_of(target, "forgotten").load_table("forgetful.orders")
    for _ in range(3):
        moved.append(ROWS)
        table.append(ROWS)
    assert action("--update") == "conflict"
    assert len(catalog_of(target, "forgotten").load_table("forgetful.orders").scan().to_arrow()) == 9 * len(ROWS)


def test_another_table_of_the_name_is_a_conflict_and_stays(
    source: ServerProcess, target: ServerProcess, user: User
) -> None:
    lake = catalog_of(target)
    lake.create_namespace("sales")
    kept = lake.create_table("sales.orders", COLUMNS).metadata.table_uuid
    command = ("import", "rest", source.url, "--namespace", "sales", "--into", "main", "--server", target.url)

    done = user.run(*command, "--yes", "--json")

    assert ("conflict", "main.sales.orders") in rows_of(done)
    assert ("create", "main.sales.recent") in rows_of(done)
    assert done.code == 5
    assert lake.load_table("sales.orders").metadata.table_uuid == kept


def test_a_table_outside_the_allowed_locations_fails_with_the_flag_that_allows_it(
    source: ServerProcess, user: User, tmp_path: Path
) -> None:
    store = ("--store", str(tmp_path / "store"))
    command = ("import", "rest", source.url, "--namespace", "sales", "--into", "lake", *store, "--yes", "--json")
    user.run("catalog", "create", "lake", *store)

    refused = user.run(*command)
    flag = refused.err.partition("--allow-location ")[2].partition(",")[0].split(" ")[0]
    allowed = user.run(*command, "--allow-location", flag)

    assert refused.code == 5
    assert ("failed", "lake.sales.orders") in rows_of(refused)
    assert allowed.code == 0, allowed.err
    assert ("register", "lake.sales.orders") in rows_of(allowed)


def test_a_source_with_logins_is_read_with_its_credential(
    user: User, admin: User, secured: ServerProcess, tmp_path: Path
) -> None:
    admin.run("create", "namespace", "main.imported")
    command = ("import", "rest", secured.url, "--into", "lake", "--store", str(tmp_path / "store"), "--yes")
    user.run("catalog", "create", "lake", "--store", str(tmp_path / "store"))

    without = user.run(*command)
    wrong = user.run(*command, "--source-credential", "admin:wrong")
    right = user.run(*(*command, "--namespace", "imported", "--source-credential", f"admin:{ADMIN_SECRET}", "--json"))

    assert (without.code, wrong.code) == (4, 4)
    assert "SANDUR_SOURCE_CREDENTIAL" in without.err
    assert ("create", "lake.imported") in rows_of(right)
    assert ADMIN_SECRET not in right.out + right.err + wrong.err


def test_a_unity_catalog_gives_external_tables_volumes_and_functions(
    source: ServerProcess, target: ServerProcess, user: User
) -> None:
    chosen = ("--catalog", "main", "--schema", "sales", "--into", "unity", "--server", target.url)
    command = ("import", "unity", source.url, *chosen, "--yes", "--json")

    imported = user.run(*command)
    again = user.run(*command)

    found = {name: action for action, name in rows_of(imported)}
    assert imported.code == 0, imported.err
    assert found == {
        "unity": "create",
        "unity.sales": "create",
        "unity.sales.orders": "skipped",
        "unity.sales.events": "register",
        "unity.sales.owned": "skipped",
        "unity.sales.recent": "skipped",
        "unity.sales.files": "create",
        "unity.sales.managed": "skipped",
        "unity.sales.plus": "create",
    }
    assert {action for action, _ in rows_of(again)} == {"same", "skipped"}, again.out
    assert user.run("show", "unity.sales.events", "--server", target.url, "--json").json["format"] == "delta"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The folder of a Hadoop catalog: its tables have files v1.metadata.json and a hint."""
    folder = tmp_path / "warehouse"
    for name in ("orders", "items"):
        table = folder / "sales.db" / name
        (table / "metadata").mkdir(parents=True)
        for number in (1, 2, 10):
            metadata = _metadata(table, name, number)
            (table / "metadata" / f"v{number}.metadata.json").write_text(json.dumps(metadata))
        (table / "metadata" / "version-hint.text").write_text("10")
    shutil.copytree(folder / "sales.db" / "items", folder / "copies" / "items")
    return folder


def _metadata(table: Path, name: str, number: int) -> dict[str, Any]:
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
    return {
        "format-version": 2,
        "table-uuid": f"00000000-0000-4000-8000-{'1' * 11}{len(name)}",
        "location": str(table),
        "last-sequence-number": 0,
        "last-updated-ms": 1_700_000_000_000 + number,
        "last-column-id": 1,
        "schemas": [schema],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {"number": str(number)},
    }


def test_the_newest_version_of_each_table_in_a_hadoop_warehouse_is_registered(
    user: User, tmp_path: Path, warehouse: Path
) -> None:
    shutil.rmtree(warehouse / "copies")
    before = files_below(warehouse)
    store = ("--store", str(tmp_path / "store"))
    user.run("catalog", "create", "lake", *store)
    chosen = ("--into", "lake", *store, "--allow-location", str(warehouse))
    command = ("import", "folder", str(warehouse), *chosen, "--yes", "--json")

    planned = user.run(*command, "--dry-run")
    untouched = files_below(warehouse)
    imported = user.run(*command)
    again = user.run(*command)

    assert ("register", "lake.sales.orders") in rows_of(planned)
    assert untouched == before
    assert imported.code == 0, imported.err
    assert {action for action, _ in rows_of(again)} == {"same"}
    reader = User(user.home, SANDUR_ALLOWED_LOCATIONS=str(warehouse))
    assert reader.run("show", "lake.sales.orders", *store, "--json").json["properties"]["number"] == "10"


def test_a_copy_of_a_table_is_not_registered_as_the_table(user: User, tmp_path: Path, warehouse: Path) -> None:
    store = ("--store", str(tmp_path / "store"))
    user.run("catalog", "create", "lake", *store)

    done = user.run(
        *("import", "folder", str(warehouse), "--into", "lake", *store, "--yes", "--json"),
        *("--allow-location", str(warehouse)),
    )

    assert {("skipped", "lake.copies.items"), ("register", "lake.sales.items")} < set(rows_of(done)), done.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("rest", "ftp://x", "--into", "lake"), "expected an address"),
        (("rest", "http://127.0.0.1:1", "--into", "a.b"), "expected the name of a catalog"),
        (("rest", "http://127.0.0.1:1", "--into", "a", "--source-credential", "x"), "ID:SECRET"),
        (("folder", "/does/not/exist", "--into", "a"), "does not exist"),
    ],
)
def test_bad_input_has_a_clear_error(user: User, tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    user.run("catalog", "create", "lake", "--store", str(tmp_path))

    done = user.run("import", *arguments, "--store", str(tmp_path), "--yes")

    assert done.code != 0
    assert text in done.err


KEY_ID, SECRET, SESSION = "AKIDEXAMPLE", "the secret of the key", "the token of the session"
ACCOUNT = "123456789012"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/(\w+)/aws4_request, SignedHeaders=([\w;-]+), Signature=(\w+)\Z"
)


def signature_of(method: str, url: str, headers: Mapping[str, str], secret: str, scope: tuple[str, str, str]) -> str:
    """Signature Version 4 of a request without a body, after the documentation of AWS, without their library."""
    parts = urlsplit(url)
    signed = _AUTHORIZATION.match(headers["authorization"])[5].split(";")  # type: ignore[index] # The caller matched it.
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    canonical = "\n".join(
        (
            method,
            quote(parts.path, safe="/-_.~"),  # Every service but S3 wants the path encoded twice.
            query,
            *(f"{name}:{headers[name].strip()}" for name in signed),
            "",
            ";".join(signed),
            hashlib.sha256(b"").hexdigest(),
        )
    )
    day, region, service = scope
    text = "\n".join(
        (
            "AWS4-HMAC-SHA256",
            headers["x-amz-date"],
            f"{day}/{region}/{service}/aws4_request",
            hashlib.sha256(canonical.encode()).hexdigest(),
        )
    )
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


class _Glue(BaseHTTPRequestHandler):
    """Answers as Glue's Iceberg endpoint, at its paths, with the content of another server, to signed requests only."""

    behind = ""
    paths: list[str]

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not self._is_signed(headers):
            self._answer(403, b'{"error":{"message":"bad signature","type":"AccessDeniedException","code":403}}')
            return
        self.paths.append(self.path)
        if self.path.startswith("/iceberg/v1/config"):
            self._answer(200, json.dumps({"overrides": {"prefix": f"catalogs/{ACCOUNT}"}, "defaults": {}}).encode())
            return
        path = self.path.replace(f"/iceberg/v1/catalogs/{ACCOUNT}/", "/v1/main/", 1)
        try:
            with urllib.request.urlopen(self.behind + path, timeout=60) as answer:  # noqa: S310 - on loopback
                self._answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.read())

    def _is_signed(self, headers: Mapping[str, str]) -> bool:
        found = _AUTHORIZATION.match(headers.get("authorization", ""))
        if not found or found[1] != KEY_ID or headers.get("x-amz-security-token") != SESSION:
            return False
        if not {"host", "x-amz-date", "x-amz-security-token"} <= {*found[5].split(";")}:
            return False
        scope = (found[2], found[3], found[4])
        wanted = signature_of("GET", self.path, headers, SECRET, scope)
        return scope[1:] == ("eu-central-1", "glue") and hmac.compare_digest(wanted, found[6])

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def glue_before(server: ServerProcess) -> Iterator[tuple[str, list[str]]]:
    paths: list[str] = []
    handler = type("_", (_Glue,), {"behind": server.url, "paths": paths})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/iceberg", paths
        finally:
            running.shutdown()
            thread.join()


@pytest.mark.parametrize(("secret", "code"), [(SECRET, 0), ("another secret", 4)])
def test_a_catalog_is_imported_by_signed_requests_at_the_paths_of_glue(
    source: ServerProcess, user: User, tmp_path: Path, secret: str, code: int
) -> None:
    """Into a server of its own: the tables of the source may be in one catalog of a store only."""
    keys = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": SESSION}
    user.environment.update(keys)

    allow = ("--allow-location", f"file://{source.folder}")
    with glue_before(source) as (url, paths), server_process(tmp_path, *allow, fsync="never") as target:
        signed = ("--warehouse", ACCOUNT, "--sigv4-region", "eu-central-1")
        done = user.run("import", "rest", url, *signed, "--into", "glue", "--server", target.url, "--yes", "--json")

    assert done.code == code, done.err
    if code == 0:
        assert ("register", "glue.sales.orders") in rows_of(done)
        assert ("register", "glue.sales.europe.orders") in rows_of(done)
        assert paths[0] == f"/iceberg/v1/config?warehouse={ACCOUNT}"
        assert all(path.startswith(f"/iceberg/v1/catalogs/{ACCOUNT}/") for path in paths[1:])
    else:
        assert paths == []

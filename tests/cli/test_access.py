"""`sandur grant`, `revoke`, `grants`, `principal` and `group` against a real server."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.commands import User, ended
from tests.server.process import ServerProcess

NAMESPACES = "/v1/namespaces"
SALES = "main.sales"


@pytest.fixture(autouse=True)
def _sales(admin: User, secured: ServerProcess) -> Iterator[None]:
    """The namespace `sales` with the table `orders` and the namespace `europe`; principals are dropped at the end."""
    token = admin.credentials()["default"]["access_token"]
    with httpx.Client(base_url=secured.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        client.post(NAMESPACES, json={"namespace": ["sales"]})
        fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
        table = {"name": "orders", "schema": {"type": "struct", "fields": fields}}
        client.post(f"{NAMESPACES}/sales/tables", json=table)
        client.post(NAMESPACES, json={"namespace": ["sales", "europe"]})
        yield
        for name in client.get("/api/sandur/v1/principals").json()["principals"]:
            client.delete(f"/api/sandur/v1/principals/{name['name']}")


def program(user: User, secured: ServerProcess, name: str, secret: str) -> User:
    done = user.run(
        *("login", "--server", secured.url, "--client-id", name, "--client-secret-stdin"), stdin=f"{secret}\n"
    )
    assert done.code == 0, done.err
    return user


def table_status(user: User, secured: ServerProcess) -> int:
    """What the server answers to the user's request for the table."""
    token = user.credentials()["default"]["access_token"]
    address = f"{secured.url}{NAMESPACES}/sales/tables/orders"
    return httpx.get(address, headers={"Authorization": f"Bearer {token}"}, timeout=60).status_code


def test_a_new_program_is_refused_then_granted_then_allowed(admin: User, user: User, secured: ServerProcess) -> None:
    made = admin.run("principal", "create", "loader", "--group", "analysts", "--json").json
    loader = program(user, secured, "loader", made["client_secret"])

    refused = [table_status(loader, secured), loader.run("grants", "show", SALES).code]
    not_allowed = loader.run(*f"grant SELECT on {SALES} to loader".split())
    granted = [
        admin.run(*statement.split())
        for statement in (
            "grant use catalog on main to analysts",
            f"grant USE SCHEMA, SELECT on {SALES} to analysts",
            f"grant SELECT on {SALES}.orders to loader",
        )
    ]

    assert refused == [404, 3]
    assert not_allowed.code == 3
    assert [done.code for done in granted] == [0, 0, 0], granted
    assert "Granted USE SCHEMA, SELECT on schema main.sales to analysts." in granted[1].err
    assert "on table main.sales.orders to loader" in granted[2].err
    assert table_status(loader, secured) == 200
    assert loader.run(*f"grant MANAGE on {SALES} to loader".split()).code == 4

    for who, on in (("analysts", SALES), ("loader", f"{SALES}.orders")):
        assert admin.run("revoke", "SELECT", "on", on, "from", who).code == 0
    assert table_status(loader, secured) != 200


def test_grants_are_shown_as_lines_and_with_their_origin(admin: User) -> None:
    admin.run("principal", "create", "reader", "--group", "readers")
    admin.run("grant", "BROWSE,", "USE_CATALOG", "on", "catalog", "main", "to", "readers")
    admin.run("grant", "SELECT", "on", "main.sales.europe", "to", "reader")

    lines = admin.run("grants", "show", "main").out.splitlines()
    nested = admin.run("grants", "show", "main.sales.europe", "--json").json
    why = admin.run("grants", "show", "schema", "main.sales.europe", "--for", "reader").out.splitlines()

    assert "readers\tUSE CATALOG, BROWSE" in lines
    assert nested["securable_type"] == "schema"
    assert why == [
        "privilege\tgranted on\tname\tgranted to",
        "USE CATALOG\tcatalog\tmain\treaders",
        "BROWSE\tcatalog\tmain\treaders",
        "SELECT\tschema\tmain.sales.europe\treader",
    ]


def test_an_object_gets_a_new_owner_who_may_grant(admin: User, user: User, secured: ServerProcess) -> None:
    made = admin.run("principal", "create", "keeper", "--group", "keepers", "--json").json
    keeper = program(user, secured, "keeper", made["client_secret"])
    admin.run("grant", "USE CATALOG, USE SCHEMA", "on", "main", "to", "keepers")
    before = keeper.run(*f"grant SELECT on {SALES}.orders to keepers".split())

    table = admin.run("owner", "set", f"{SALES}.orders", "keepers")
    schema = admin.run("owner", "set", "schema", f"{SALES}.europe", "keeper", "--json")

    assert before.code in {3, 4}
    assert (table.code, "Table main.sales.orders belongs to keepers now." in table.err) == (0, True), table.err
    assert schema.json == {"securable_type": "schema", "full_name": f"{SALES}.europe", "owner": "keeper"}
    assert keeper.run(*f"grant SELECT on {SALES}.orders to keepers".split()).code == 0
    assert keeper.run("owner", "set", SALES, "keeper").code == 4
    assert admin.run("owner", "set", f"{SALES}.orders", "admin").code == 0
    assert admin.run("revoke", "SELECT", "on", f"{SALES}.orders", "from", "keepers").code == 0


def test_a_revocation_on_a_table_can_be_fenced(admin: User) -> None:
    admin.run("principal", "create", "writer")
    admin.run(*f"grant MODIFY on {SALES}.orders to writer".split())

    done = admin.run(*f"revoke MODIFY on {SALES}.orders from writer --fenced --json".split())

    assert done.json["grants"] == []


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("grant SELECT on main.sales", 1, "expected: sandur grant PRIVILEGE on NAME to WHO"),
        ("grant SELECT on main.sales from admin", 1, "expected: sandur grant PRIVILEGE on NAME to WHO"),
        ("revoke SELECT on main.sales to admin", 1, "expected: sandur revoke PRIVILEGE on NAME from WHO"),
        ("grant ALL on main.sales to admin", 1, "privilege 'ALL' does not exist; the privileges are: CREATE CATALOG"),
        ("grant SELECT on planet main to admin", 1, "expected NAME, or TYPE NAME"),
        ("grant SELECT on main.sales to stranger", 3, "stranger"),
        ("grant SELECT on main.nothing to admin", 3, "nothing"),
        ("grants show main.sales.nothing", 3, "nothing"),
        ("owner set main.sales stranger", 3, "stranger"),
        ("owner set main.nothing admin", 3, "nothing"),
        ("owner set main.sales", 1, "expected: sandur owner set NAME WHO"),
        ("owner set planet main admin", 1, "expected NAME, or TYPE NAME"),
        ("principal show stranger", 3, "Principal does not exist: stranger"),
        ("principal delete admin", 1, "owns the metastore"),
        ("principal create admin", 5, "Principal already exists: admin"),
        ("principal create everyone", 1, "Invalid name"),
        ("principal rotate-secret admin --expires soon", 1, "expected ISO-8601"),
    ],
)
def test_a_command_that_fails_says_why(admin: User, command: str, code: int, message: str) -> None:
    done = admin.run(*command.split())

    assert (done.code, message in done.err) == (code, True), done.err


def test_stages_are_listed(admin: User, secured: ServerProcess) -> None:
    body = {"name": "s", "stage-create": True, "schema": {"type": "struct", "schema-id": 0, "fields": []}}
    headers = {"Authorization": f"Bearer {admin.run('profile', 'token').out.strip()}"}
    with httpx.Client(base_url=secured.url, headers=headers) as client:
        client.post("/v1/namespaces", json={"namespace": ["staged"]}).raise_for_status()
        client.post("/v1/namespaces/staged/tables", json=body).raise_for_status()

    (stage,) = admin.run("stages", "--json").json
    lines = admin.run("stages").out.splitlines()

    assert (stage["catalog_name"], stage["namespace"], stage["name"], stage["created_by"]) == (
        "main",
        ["staged"],
        "s",
        "admin",
    )
    assert lines[0].split("\t")[:2] == ["table", "format"]
    assert lines[1].split("\t")[:3] == ["main.staged.s", "iceberg", stage["stage_id"]]


def test_a_principal_is_listed_shown_disabled_enabled_and_deleted(
    admin: User, user: User, secured: ServerProcess
) -> None:
    made = admin.run("principal", "create", "job", "--json").json
    job = program(user, secured, "job", made["client_secret"])

    admin.run("principal", "disable", "job")
    listed = {one["name"]: one["disabled"] for one in admin.run("principal", "list", "--json").json}
    disabled = job.run("whoami")
    admin.run("principal", "enable", "job")
    again = program(user, secured, "job", made["client_secret"])

    trusted = admin.run("principal", "trust", "job")
    shown = admin.run("principal", "show", "job", "--json").json
    admin.run("principal", "trust", "job", "--no-pipeline")

    assert (trusted.code, shown["pipeline"]) == (0, True)
    assert admin.run("principal", "show", "job", "--json").json["pipeline"] is False
    assert listed["job"]
    assert (disabled.code, "sandur login" in disabled.err) == (4, True)
    assert again.run("whoami", "--json").json["name"] == "job"
    assert "job\tservice\tenabled\t" in admin.run("principal", "list").out
    assert "name\tjob" in admin.run("principal", "show", "job").out
    assert admin.run("principal", "delete", "job").code == 0
    assert admin.run("principal", "show", "job").code == 3


def test_a_rotated_secret_and_its_predecessor_are_both_valid(
    admin: User, secured: ServerProcess, tmp_path: Path
) -> None:
    first = admin.run("principal", "create", "rotated", "--json").json["client_secret"]

    second = admin.run("principal", "rotate-secret", "rotated", "--expires", "P90D", "--json").json
    third = admin.run("principal", "rotate-secret", "rotated").out.splitlines()[1].split("\t")

    assert second["expires_at"] > second["created_at"]
    for secret in (second["client_secret"], third[1]):
        program(User(tmp_path / "either"), secured, "rotated", secret)
    refused = User(tmp_path / "first").run(
        *("login", "--server", secured.url, "--client-id", "rotated", "--client-secret-stdin"), stdin=first
    )
    assert refused.code == 4


def test_a_person_has_no_secret(admin: User) -> None:
    made = admin.run("principal", "create", "carl@example.org", "--user", "--json").json

    assert (made["kind"], "client_secret" in made) == ("user", False)
    assert admin.run("principal", "rotate-secret", "carl@example.org").code == 1


def test_groups_get_and_lose_members(admin: User) -> None:
    for name in ("one", "two"):
        admin.run("principal", "create", name, "--group", "first")

    made = admin.run("group", "create", "second", "one", "--role", "--json").json
    again = admin.run("group", "create", "second")
    changed = [
        admin.run(*command.split()).code
        for command in ("group add second two", "group remove first two", "group add second one")
    ]

    assert (made["kind"], made["members"]) == ("role", ["one"])
    assert (again.code, changed) == (5, [0, 0, 0])
    lines = admin.run("group", "list").out.splitlines()
    assert {"first\tgroup\tone", "second\trole\tone, two"} <= set(lines)
    for command in ("group add second stranger", "group add missing one", "group remove second stranger"):
        assert admin.run(*command.split()).code == 3
    assert admin.run("group", "add", "second", "second").code == 1
    assert [admin.run("group", "delete", name).code for name in ("first", "second", "second")] == [0, 0, 3]


def test_exit_codes_are_those_of_the_process(admin: User) -> None:
    processes = [
        admin.start(*command)
        for command in (
            ["principal", "show", "stranger"],
            ["principal", "create", "admin"],
            ["whoami", "--server", "http://127.0.0.1:9"],
            ["whoami", "--unknown"],
        )
    ]

    assert [ended(process).code for process in processes] == [3, 5, 7, 2]

"""`sandur policy` against a real server."""

from tests.cli.commands import User
from tests.server.process import ServerProcess


def test_a_policy_is_set_shown_with_its_origin_and_unset(admin: User, secured: ServerProcess) -> None:
    del secured
    assert admin.run("policy", "set", "metastore", "priority=10").code == 0
    assert admin.run("policy", "set", "main", "mode=run", "snapshots.min_to_keep=3", "--lock", "mode").code == 0

    shown = {line.split("\t")[0]: line.split("\t")[1:] for line in admin.run("policy", "show", "main").out.splitlines()}

    assert shown["field"] == ["value", "decided by"]
    assert shown["mode"] == ["run", "catalog main (locked)"]
    assert shown["snapshots.min_to_keep"] == ["3", "catalog main"]
    assert shown["priority"] == ["10", "workspace"]
    assert shown["orphans.age"] == ["P3D", "default"]

    assert admin.run("policy", "unset", "main", "mode", "snapshots.min_to_keep").code == 0
    assert admin.run("policy", "show", "main", "--json").json["values"] == {}
    assert admin.run("policy", "unset", "metastore", "priority").code == 0


def test_mistakes_in_a_policy_are_explained(admin: User, secured: ServerProcess) -> None:
    del secured
    no_value = admin.run("policy", "set", "main", "mode")
    unknown = admin.run("policy", "set", "main", "speed=fast")
    missing = admin.run("policy", "show", "main.nothing.here")

    assert (no_value.code, "FIELD=VALUE" in no_value.err) == (1, True)
    assert (unknown.code, "speed" in unknown.err) == (1, True)
    assert missing.code == 3


def test_maintenance_of_a_table_is_requested(admin: User, secured: ServerProcess) -> None:
    del secured
    admin.run("create", "namespace", "main.kept")
    made = admin.run("create", "table", "main.kept.orders", "--columns", "id long")
    no_name = admin.run("maintain", "--request")
    missing = admin.run("maintain", "main.kept.none", "--request")

    first = admin.run("maintain", "main.kept.orders", "--request")
    again = admin.run("maintain", "main.kept.orders", "--request", "--json")

    assert made.code == 0, made.err
    assert (no_name.code, missing.code) == (1, 3)
    assert first.code == 0, first.err
    assert "is requested" in first.err
    assert (again.json["state"], again.json["name"]) == ("requested", "orders")

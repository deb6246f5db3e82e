"""The end of a commit on a view: required parts, dialects that must stay, and the kept history."""

import pytest

from sandur.errors import Invalid
from tests.unit.iceberg.views import (
    COLUMNS,
    LOCATION,
    VIEW_UUID,
    Json,
    add_schema,
    add_version,
    after,
    committed,
    creation,
    ids,
    log_entry,
    logged,
    query,
    set_current,
    version,
    view,
)

ALLOWED = {"replace.drop-dialect.allowed": "true"}


def history_of(size: str) -> Json:
    return {"properties": {"version.history.num-entries": size}}


def versions(count: int) -> list[Json]:
    return [version(number) for number in range(1, count + 1)]


class TestNewView:
    def test_a_view_is_built_from_the_updates_of_a_client(self) -> None:
        fields = after(None, *creation())

        assert fields == {
            "view-uuid": VIEW_UUID,
            "format-version": 1,
            "location": LOCATION,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": list(COLUMNS)}],
            "current-version-id": 1,
            "versions": [version(1)],
            "version-log": [log_entry(1)],
        }

    @pytest.mark.parametrize(
        ("left_out", "text"),
        [
            ("assign-uuid", "Invalid view: no uuid was assigned"),
            ("set-location", "Invalid location: null"),
            ("set-current-view-version", "Cannot find current version 0 in view versions: [1]"),
        ],
    )
    def test_a_view_without_a_required_part_is_refused(self, left_out: str, text: str) -> None:
        with pytest.raises(Invalid) as refused:
            committed(None, *(update for update in creation() if update["action"] != left_out))

        assert str(refused.value) == text

    def test_a_view_without_versions_is_refused(self) -> None:
        with pytest.raises(Invalid, match=r"^Invalid view: no versions were added$"):
            committed(None, *creation()[:4])


class TestDialects:
    BASE = version(1, query("spark"), query("Trino"))

    def replaced(self, *representations: Json, **more: object) -> Json:
        return after(view(self.BASE, **more), add_version(2, *representations), set_current(2))

    def test_a_version_that_loses_a_dialect_is_refused(self) -> None:
        with pytest.raises(Invalid) as refused:
            self.replaced(query("trino", "SELECT 2"))

        assert str(refused.value) == (
            "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
            "Previous dialects: [spark, trino]\nNew dialects: [trino]"
        )

    def test_the_same_dialects_in_other_case_and_order_are_accepted(self) -> None:
        assert self.replaced(query("TRINO", "SELECT 2"), query("Spark", "SELECT 2"))["current-version-id"] == 2

    def test_an_additional_dialect_is_accepted(self) -> None:
        assert self.replaced(query("trino"), query("spark"), query("duckdb"))["current-version-id"] == 2

    @pytest.mark.parametrize("spelling", ["true", "TRUE", "True"])
    def test_dialects_can_be_dropped_if_the_view_allows_it(self, spelling: str) -> None:
        allowed = {"replace.drop-dialect.allowed": spelling}

        assert self.replaced(query("trino", "SELECT 2"), properties=allowed)["current-version-id"] == 2

    @pytest.mark.parametrize("spelling", ["false", "yes", "1", ""])
    def test_only_true_allows_dropping_dialects(self, spelling: str) -> None:
        with pytest.raises(Invalid, match="loss of view dialects"):
            self.replaced(query("trino", "SELECT 2"), properties={"replace.drop-dialect.allowed": spelling})

    def test_the_permission_may_come_with_the_commit_that_needs_it(self) -> None:
        changes = [add_version(2, query("trino")), set_current(2), {"action": "set-properties", "updates": ALLOWED}]

        assert after(view(self.BASE), *changes)["current-version-id"] == 2

    def test_the_permission_may_be_removed_by_the_commit_that_needs_it(self) -> None:
        changes = [
            {"action": "remove-properties", "removals": [*ALLOWED]},
            add_version(2, query("trino")),
            set_current(2),
        ]

        with pytest.raises(Invalid, match="loss of view dialects"):
            committed(view(self.BASE, properties=ALLOWED), *changes)

    def test_a_version_that_does_not_become_current_may_have_other_dialects(self) -> None:
        assert ids(after(view(self.BASE), add_version(2, query("duckdb")))) == [1, 2]

    def test_only_the_version_before_the_commit_counts(self) -> None:
        changes = [
            add_version(2, query("spark"), query("trino"), query("duckdb")),
            set_current(2),
            set_current(1),
        ]

        assert after(view(self.BASE), *changes)["current-version-id"] == 1

    def test_going_back_to_a_version_with_fewer_dialects_is_refused(self) -> None:
        base = view(version(1, query("spark")), version(2, query("spark"), query("trino")))

        with pytest.raises(Invalid, match="loss of view dialects"):
            committed(base, set_current(1))


class TestHistory:
    def test_ten_versions_are_kept_by_default(self) -> None:
        fields = after(view(*versions(10)), add_version(11), set_current(11))

        assert ids(fields) == logged(fields) == list(range(2, 12))

    def test_the_view_can_set_its_limit(self) -> None:
        fields = after(view(*versions(5), **history_of("3")), add_version(6), set_current(6))

        assert ids(fields) == logged(fields) == [4, 5, 6]

    def test_the_limit_may_come_with_the_commit(self) -> None:
        limit = {"action": "set-properties", "updates": {"version.history.num-entries": "1"}}

        fields = after(view(*versions(5)), add_version(6), set_current(6), limit)

        assert ids(fields) == logged(fields) == [6]

    def test_the_current_version_is_kept_at_any_age(self) -> None:
        base = view(*versions(5), **history_of("2"), **{"current-version-id": 1})

        fields = after(base, add_version(6))

        assert ids(fields) == [1, 6]

    def test_versions_added_now_are_kept_beyond_the_limit(self) -> None:
        fields = after(view(*versions(2), **history_of("1")), *map(add_version, range(3, 7)), set_current(6))

        assert ids(fields) == [3, 4, 5, 6]

    def test_versions_added_now_and_the_current_one_are_kept_together(self) -> None:
        fields = after(view(*versions(2), **history_of("2")), add_version(3), add_version(4))

        assert ids(fields) == [2, 3, 4]

    def test_setting_an_older_version_current_also_expires_others(self) -> None:
        fields = after(view(*versions(5), **history_of("2")), set_current(3))

        assert ids(fields) == [3, 5]

    def test_log_entries_up_to_an_expired_version_are_removed(self) -> None:
        base = view(*versions(3), **history_of("3"), **{"version-log": [log_entry(n) for n in (2, 1, 3, 2, 3)]})

        fields = after(base, add_version(4), set_current(4))

        assert ids(fields) == [2, 3, 4]
        assert logged(fields) == [3, 2, 3, 4]

    def test_the_log_is_unchanged_without_expiry(self) -> None:
        base = view(*versions(2), **{"version-log": [log_entry(n) for n in (77, 1, 2)]})

        assert logged(after(base, set_current(1))) == [77, 1, 2, 1]

    def test_schemas_of_expired_versions_stay(self) -> None:
        fields = after(view(**history_of("1")), add_schema(COLUMNS[0]), add_version(3, schema_id=-1), set_current(3))

        assert [schema["schema-id"] for schema in fields["schemas"]] == [0, 1]

    @pytest.mark.parametrize("size", ["0", "-1", "-2147483648"])
    def test_a_limit_that_is_not_positive_is_refused(self, size: str) -> None:
        limit = {"action": "set-properties", "updates": {"version.history.num-entries": size}}

        with pytest.raises(Invalid) as refused:
            committed(view(), limit)

        assert str(refused.value) == f"version.history.num-entries must be positive but was {size}"

    @pytest.mark.parametrize("size", ["", "ten", "1.5", "4294967296", " 1"])
    def test_a_limit_that_is_not_a_number_is_refused(self, size: str) -> None:
        limit = {"action": "set-properties", "updates": {"version.history.num-entries": size}}

        with pytest.raises(Invalid) as refused:
            committed(view(), limit)

        assert str(refused.value) == f"View property version.history.num-entries must have integer value: {size}"

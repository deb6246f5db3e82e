"""The checker itself: it explains every possible history and no other."""

from tests.statemachine.specification import (
    MISSING,
    OK,
    Commit,
    Create,
    CreateNamespace,
    Drop,
    DropNamespace,
    Load,
    Recorded,
    Rename,
    Transact,
    Undrop,
    World,
    explanations,
)

EMPTY = World()
NOTHING = frozenset[str]()


def table(name: str, label: str, *labels: str) -> World:
    return EMPTY.named(name, label).showing(label, frozenset({label, *labels}))


def test_every_later_operation_sees_an_answered_one() -> None:
    stale = [Recorded(Commit("t", "c"), 1, 2, OK), Recorded(Load("t"), 3, 4, frozenset({"a"}))]
    fresh = [Recorded(Commit("t", "c"), 1, 2, OK), Recorded(Load("t"), 3, 4, frozenset({"a", "c"}))]

    assert not explanations(stale, [table("t", "a")])
    assert explanations(fresh, [table("t", "a")]) == {table("t", "a", "c")}


def test_operations_that_overlap_may_happen_in_any_order() -> None:
    for seen in (frozenset({"a"}), frozenset({"a", "c"})):
        overlapping = [Recorded(Commit("t", "c"), 1, 4, OK), Recorded(Load("t"), 2, 3, seen)]
        assert explanations(overlapping, [table("t", "a")])


def test_a_reader_never_sees_new_and_then_old() -> None:
    new_then_old = [
        Recorded(Commit("t", "c"), 1, 9, OK),
        Recorded(Load("t"), 2, 3, frozenset({"a", "c"})),
        Recorded(Load("t"), 4, 5, frozenset({"a"})),
    ]

    assert not explanations(new_then_old, [table("t", "a")])


def test_half_a_transaction_is_not_explained() -> None:
    both = table("t", "a").named("u", "b").showing("b", frozenset({"b"}))
    torn = [
        Recorded(Transact(("t", "u"), "x"), 1, 9, OK),
        Recorded(Load("t"), 2, 3, frozenset({"a", "x"})),
        Recorded(Load("u"), 4, 5, frozenset({"b"})),
    ]

    assert not explanations(torn, [both])


def test_one_of_two_creators_of_a_name_is_refused() -> None:
    both = [Recorded(Create("t", "a"), 1, 4, OK), Recorded(Create("t", "b"), 2, 3, OK)]

    assert not explanations(both, [EMPTY])


def test_an_operation_with_an_unknown_outcome_may_have_happened_or_not() -> None:
    unsure = [Recorded(Drop("t"), 1, 2, "Busy")]

    assert explanations(unsure, [table("t", "a")]) == {table("t", "a"), table("t", "a").without("t")}


def test_a_renamed_table_has_one_of_its_two_names_at_every_moment() -> None:
    nowhere = [
        Recorded(Rename("t", "u"), 1, 9, OK),
        Recorded(Load("t"), 2, 3, MISSING),
        Recorded(Load("u"), 4, 5, MISSING),
    ]

    assert not explanations(nowhere, [table("t", "a")])


def test_a_commit_that_resolved_its_name_before_a_rename_may_happen_after_it() -> None:
    by_identity = [
        Recorded(Commit("t", "c"), 1, 9, OK),
        Recorded(Rename("t", "u"), 2, 3, OK),
        Recorded(Load("u"), 4, 5, frozenset({"a"})),
    ]

    assert explanations(by_identity, [table("t", "a")])
    assert not explanations(by_identity, [EMPTY])


def test_what_was_dropped_comes_back_until_its_name_is_used_again() -> None:
    back = [Recorded(Drop("t"), 1, 2, OK), Recorded(Undrop("t"), 3, 4, OK), Recorded(Load("t"), 5, 6, frozenset("a"))]
    used = [Recorded(Drop("t"), 1, 2, OK), Recorded(Create("t", "b"), 3, 4, OK), Recorded(Undrop("t"), 5, 6, OK)]
    lost = [Recorded(Drop("t"), 1, 2, OK), Recorded(Undrop("t"), 3, 4, MISSING)]

    assert explanations(back, [table("t", "a")])
    assert not explanations(used, [table("t", "a")])
    assert not explanations(lost, [table("t", "a")])
    assert explanations(lost, [table("t", "a")._replace(forgets=True)])


def test_a_namespace_with_a_table_is_not_dropped_and_a_dropped_one_takes_none() -> None:
    full = [Recorded(DropNamespace(), 1, 2, OK)]
    gone = [Recorded(DropNamespace(), 1, 2, OK), Recorded(Create("t", "a"), 3, 4, OK)]
    again = [Recorded(DropNamespace(), 1, 2, OK), Recorded(CreateNamespace(), 3, 4, OK)]

    assert not explanations(full, [table("t", "a")])
    assert not explanations(gone, [EMPTY])
    assert explanations([*again, Recorded(Create("t", "a"), 5, 6, OK)], [EMPTY])

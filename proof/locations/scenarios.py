"""The scenarios of the location protocol: which requests meet, on which store."""

from typing import Final

from proof.answers import OK
from proof.checker import Actor, Moment, System, Violation
from proof.locations.records import (
    RULES,
    TRANSACTION,
    Claim,
    Options,
    Pointer,
    file_at,
    living,
    order_of,
    pointer_of,
)
from proof.locations.removal import drop, purge, sweep, undrop, undrop_generated
from proof.locations.requests import (
    commit,
    commit_elsewhere,
    create,
    create_at_all,
    create_catalog,
    transact,
)
from proof.locations.system import Expected, Owner, check_not_stuck, check_places, judgement, store_with, system
from proof.rules import Rules
from proof.store import Store, held

NESTED: Final = ("a", "a/b")
TABLE: Final = Owner("T", "a", 0)
LIVE: Final = Owner("V", "v", 0)
ADDED: Final = Claim("V", "name V", 2)
AT_OLD_PLACE: Final = Owner("O", "v", 3)


def janitor(address: str, rules: Rules = RULES) -> Actor:
    return Actor(f"janitor {address}", sweep, (address, rules))


def twice(*creators: Owner, options: Options = Options(), losable: int = 0) -> System:  # noqa: B008 -- an immutable value
    """The first request is sent twice at the same moment, under one uuid."""
    first = creators[0]
    again = Actor("again", create, (first.address, first.claim, options))
    return system(*creators, options=options, others=(again,), losable=losable)


def crossed(*, expires: bool, losable: int = 0) -> System:
    """P wants `a` and `c/x`, Q wants `c` and `a/b`: each is above the other at one place."""
    claims = {"P": Claim("P", "name P", 1), "Q": Claim("Q", "name Q", 2)}
    options = Options(expires=expires)
    wanted = {"P": ("a", "c/x"), "Q": ("c", "a/b")}
    actors = [Actor(f"create {uuid}", create_at_all, (wanted[uuid], claims[uuid], options)) for uuid in claims]

    def judge(moment: Moment) -> None:
        check_places(moment.store, claims)
        alive = living(moment.store)
        for uuid, result in zip(claims, moment.results, strict=True):
            if result == OK and uuid not in alive:
                raise Violation(f"the creation of {uuid} was acknowledged and is gone")
        if not expires and not losable and None not in moment.results and not alive:
            raise Violation(f"both were refused for nothing: {moment.results}")
        check_not_stuck(moment.store, ("a", "c"), claims, is_complete=True)

    return System({}, actors, judge, losable=losable)


def both(*creators: Owner, options: Options = Options(expires=False)) -> System:  # noqa: B008 -- an immutable value
    """None of the creators refuses another one: all must get their places."""
    claims = {one.uuid: one.claim for one in creators}
    judge_places = judgement(creators, claims, Expected(), is_complete=options.rules == RULES)

    def judge(moment: Moment) -> None:
        judge_places(moment)
        if None not in moment.results and set(moment.results) != {OK}:
            raise Violation(f"refused for nothing: {moment.results}")

    actors = [Actor(f"create {one.uuid}", create, (one.address, one.claim, options)) for one in creators]
    return System({}, actors, judge)


def catalogs(
    *creators: Owner,
    roots: tuple[Owner, ...],
    name: str = "",
    rules: Rules = RULES,
    losable: int = 0,
    janitors: tuple[str, ...] = (),
    probes: tuple[str, ...] = NESTED,
) -> System:
    """Catalogs with roots, under different names or all under one, beside creators of tables."""
    claims = [one.claim._replace(name=name) if name else one.claim for one in roots]
    others = [
        Actor(f"create {one.uuid}", create_catalog, (one.address, claim, Options(rules)))
        for one, claim in zip(roots, claims, strict=True)
    ]
    others += [janitor(one, rules) for one in janitors]
    expected = Expected(probes=probes)
    return system(
        *creators, options=Options(rules), others=tuple(others), known=roots, losable=losable, expected=expected
    )


def dropped(
    new: Owner,
    options: Options = Options(),  # noqa: B008 -- an immutable value
    *,
    purges: int = 0,
    undrops: int = 0,
    janitors: int = 0,
    losable: int = 0,
    probes: tuple[str, ...] = NESTED,
) -> System:
    """T at `a` is dropped, and purged if there are purges; it has a file at the place of `new`, which is created."""
    rules = options.rules
    store = {**store_with(TABLE, has_files=True), file_at(new.address).key: (1, TABLE.uuid)}
    others = [Actor("drop T", drop, (TABLE.address, TABLE.claim, rules, purges > 0))]
    others += [Actor(f"purge {number}", purge, (TABLE.address, TABLE.uuid, rules)) for number in range(purges)]
    others += [Actor(f"undrop {number}", undrop, (TABLE.address, TABLE.claim, options)) for number in range(undrops)]
    others += [janitor(TABLE.address, rules) for _ in range(janitors)]
    purged = (TABLE.uuid,) if purges else ()
    expected = Expected(dropped=(TABLE.uuid,), writers=True, purged=purged, probes=probes)
    return system(
        new, options=options, start=store, known=(TABLE,), others=tuple(others), expected=expected, losable=losable
    )


def changed(
    *creators: Owner,
    options: Options = Options(),  # noqa: B008 -- an immutable value
    is_transaction: bool = False,
    commits: int = 0,
    drops: bool = False,
    janitors: tuple[str, ...] = (),
    losable: int = 0,
    probes: tuple[str, ...] = NESTED,
) -> System:
    """A commit or a transaction adds the place `a/b` to V, which lives at `v`."""
    rules = options.rules
    store: Store = store_with(LIVE)
    if is_transaction:
        store = {**store, TRANSACTION.key: (1, "preparing")}
    others = [Actor("commit V", transact if is_transaction else commit, ("a/b", ADDED, options))]
    others += [Actor(f"other {number}", commit_elsewhere, (LIVE.uuid,)) for number in range(commits)]
    if drops:
        others.append(Actor("drop V", drop, (LIVE.address, LIVE.claim, rules, False)))
    others += [janitor(one, rules) for one in janitors]
    expected = Expected(dropped=(LIVE.uuid,) if drops else (), probes=probes)
    return system(
        *creators,
        options=options,
        start=store,
        known=(LIVE,),
        others=tuple(others),
        expected=expected,
        losable=losable,
    )


def moved(rules: Rules = RULES) -> System:
    """V moves to `a/b`, and its old files stay at `v`. Another owner is created there, dropped and purged."""
    options = Options(rules)
    others = (
        Actor("commit V", commit, ("a/b", ADDED, options, True)),
        Actor("drop O", drop, (AT_OLD_PLACE.address, AT_OLD_PLACE.claim, rules, True), after=(0,)),
        Actor("purge O", purge, (AT_OLD_PLACE.address, AT_OLD_PLACE.uuid, rules), after=(0,)),
    )
    expected = Expected(dropped=(AT_OLD_PLACE.uuid,), guarded=((LIVE.uuid, LIVE.address),))
    store = store_with(LIVE, has_files=True)
    return system(AT_OLD_PLACE, options=options, start=store, known=(LIVE,), others=others, expected=expected)


def generated(rules: Rules = RULES, *, registrants: int = 1, purges: int = 0, losable: int = 0) -> System:
    """G was dropped at the generated place `g`, which has no claim. Others register it, beside an undrop or purges."""
    made = [Owner(uuid, "g", rank) for rank, uuid in enumerate("MN"[:registrants])]
    arguments = (Options(rules), purges > 0, "G")
    actors = [Actor(f"register {one.uuid}", create, (one.address, one.claim, *arguments)) for one in made]
    store: Store = {pointer_of("G").key: (1, Pointer("dropped", ("g",)))}
    if purges:
        store = {**store, order_of("G").key: (1, "open"), file_at("g").key: (1, "G")}
        actors += [Actor(f"purge {number}", purge, ("g", "G", rules)) for number in range(purges)]
    else:
        actors.append(Actor("undrop G", undrop_generated, ("G",)))
    claims = {one.uuid: one.claim for one in made} | {"G": Claim("G", "name G", 0)}

    def judge(moment: Moment) -> None:
        check_places(moment.store, claims, is_complete=False)
        alive = living(moment.store)
        if any(result == OK and one.uuid not in alive for one, result in zip(made, moment.results, strict=False)):
            raise Violation("a registration was acknowledged and is gone")
        file = held(moment.store, file_at("g"))
        if purges and OK in moment.results and file in {None, "G"}:
            raise Violation("a file of a table that lives was deleted")
        if purges and held(moment.store, order_of("G")) is None and file == "G":
            raise Violation("the purge of G was forgotten")

    return System(store, actors, judge, losable=losable)

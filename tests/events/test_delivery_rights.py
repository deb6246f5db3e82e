"""Deliveries with the rights that the owner of a subscription has at that time."""

from sandur.catalog.event_feed.subscriptions import Answered
from sandur.operations.counters import DELIVERIES, Counters
from sandur.operations.event_feed.subscriptions import load_subscription
from sandur.operations.security import SecurityChange, SecurityEdit
from tests.events.deliveries import ScriptedSender, clock_of, delivery_world, pump, subscribe, take
from tests.events.world import as_principal, change
from tests.operations.principals import add_principals, grant, revoke
from tests.operations.requests import create, request

SERVER_ERROR = Answered(500, "status 500")


async def test_a_delivery_has_the_rights_that_its_owner_has_now() -> None:
    lake = await delivery_world(authentication="on")
    await create(lake, "t")
    await create(lake, "hidden")
    await add_principals(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    sender = ScriptedSender()
    subscription = await subscribe(as_principal(lake, "ann"))
    delivery = await take(lake, subscription, sender)
    await pump(delivery)
    assert sender.names == ["t0"]

    await revoke(lake, "ann", "table", "main.a.t", "SELECT")
    await change(lake, "t", "1")
    await pump(delivery)
    assert sender.names == ["t0"]
    assert lake.feature(Counters).times(DELIVERIES, "skipped") == 2


async def test_a_retry_is_authorized_again() -> None:
    lake = await delivery_world(authentication="on")
    await create(lake, "t")
    await add_principals(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    sender = ScriptedSender(lambda _: SERVER_ERROR)
    delivery = await take(lake, await subscribe(as_principal(lake, "ann")), sender)
    await pump(delivery)
    await revoke(lake, "ann", "table", "main.a.t", "SELECT")
    clock_of(lake).advance(7_000)
    await pump(delivery)

    assert sender.names == ["t0"]


async def test_a_subscription_whose_owner_is_removed_is_disabled() -> None:
    lake = await delivery_world(authentication="on")
    await create(lake, "t")
    await add_principals(lake, "ann")
    await grant(lake, "ann", "table", "main.a.t", "SELECT")
    subscription = await subscribe(as_principal(lake, "ann"))
    sender = ScriptedSender()
    delivery = await take(lake, subscription, sender)

    def remove(_authority: object) -> SecurityEdit:
        return SecurityEdit(principals={"id-ann": None})

    await SecurityChange(lake, request("remove"), "drop-principal", remove).run()
    await pump(delivery)

    found = (await load_subscription(lake, subscription.id)).subscription
    assert (found.state, "owner" in found.reason) == ("disabled", True)
    assert sender.names == []

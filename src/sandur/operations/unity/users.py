"""Users: each a record of its own, under an id made of its address."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from sandur.catalog.sources import Request
from sandur.catalog.users import User, UserResource, apply_resource, primary_email, user_id
from sandur.errors import AlreadyExists, BadRequest, NotFound
from sandur.operations.concurrency import gather_all
from sandur.operations.index_truth import keys_below
from sandur.operations.lake import Lake
from sandur.operations.record_changes import RecordChange
from sandur.storage.cell import Cell

READS_AT_ONCE: Final = 64


async def create_user(lake: Lake, resource: UserResource, request: Request) -> User:
    email = primary_email(resource)
    now_ms = lake.clock.now_ms()
    plain = User(id=user_id(email), email=email, display_name=email, created_ms=now_ms, changed_ms=now_ms)
    wanted = apply_resource(plain, resource)

    def decide(found: User | None) -> User:
        if found is not None and found.state == "live":
            raise AlreadyExists(f"User already exists: {email}", subject="user")
        return wanted

    return await RecordChange(lake, _cell(lake, wanted.id), request, "create-user", decide).run()


async def load_user(lake: Lake, id_: str) -> User:
    found = await _cell(lake, id_).read()
    if found is None or found.value.state == "dropped":
        raise _missing(id_)
    return found.value


async def list_users(lake: Lake) -> Sequence[User]:
    """All users, by their addresses."""
    keys = [key async for key in keys_below(lake, lake.layout.users_folder())]
    users: list[User] = []
    for start in range(0, len(keys), READS_AT_ONCE):
        found = await gather_all(_at(lake, key).read() for key in keys[start : start + READS_AT_ONCE])
        users += [held.value for held in found if held and held.value.state == "live"]
    return sorted(users, key=lambda user: user.email)


async def update_user(lake: Lake, id_: str, resource: UserResource, request: Request) -> User:
    if resource.id not in {None, id_}:
        raise BadRequest(f"The body is about user {resource.id}, the path about {id_}")

    def decide(found: User | None) -> User:
        if found is None or found.state == "dropped":
            raise _missing(id_)
        changed = apply_resource(found, resource)
        return found if changed == found else replace(changed, changed_ms=lake.clock.now_ms())

    return await RecordChange(lake, _cell(lake, id_), request, "update-user", decide).run()


async def drop_user(lake: Lake, id_: str, request: Request) -> None:
    def decide(found: User | None) -> User:
        if found is None or found.state == "dropped":
            raise _missing(id_)
        return replace(found, state="dropped", changed_ms=lake.clock.now_ms())

    await RecordChange(lake, _cell(lake, id_), request, "drop-user", decide).run()


def _cell(lake: Lake, id_: str) -> Cell[User]:
    return _at(lake, lake.layout.user(id_))


def _at(lake: Lake, key: str) -> Cell[User]:
    return Cell(lake.store, key, User, lake.clock)


def _missing(id_: str) -> NotFound:
    return NotFound(f"User does not exist: {id_}", subject="user")

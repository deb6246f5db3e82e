"""Profiles and their tokens: two files of the user, which are replaced as a whole."""

import threading
from pathlib import Path

import pytest

from sandur.client.profiles import Credentials, Profile, Profiles, user_profiles
from sandur.client.sessions import checked_server, find_target
from sandur.errors import BadRequest, NotFound, Unavailable

HERE = Profile(server="https://here.example", tenant='odd "tenant" \\ \x7f é')
THERE = Profile(server="https://there.example", issuer="https://id.example", client_id="cli")


def credentials(profile: Profile, text: str = "a token") -> Credentials:
    return Credentials(server=profile.server, access_token=text, expires_ms=7, refresh_token=f"again {text}")


def test_profiles_are_stored_used_and_removed(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path / "new" / "sandur")

    profiles.save("work", HERE, credentials(HERE))
    profiles.save("home", THERE, None)
    profiles.use("home")

    found = profiles.read()
    assert (found.current, found.profiles) == ("home", {"work": HERE, "home": THERE})
    assert (profiles.credentials("work"), profiles.credentials("home")) == (credentials(HERE), None)

    profiles.remove("work")

    assert list(profiles.read().profiles) == ["home"]
    assert profiles.credentials("work") is None


def test_the_first_profile_is_the_current_one(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)

    profiles.save("work", HERE, None)
    profiles.save("home", THERE, None)

    assert profiles.read().current == "work"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    profiles.save("work", HERE, credentials(HERE))
    (tmp_path / "credentials.json").unlink()
    (tmp_path / "credentials.json").mkdir(mode=0o700)
    (tmp_path / "credentials.json" / "occupied").touch()

    with pytest.raises(BadRequest, match="log in again"):
        profiles.save("work", HERE, credentials(HERE, "new"))

    assert sorted(one.name for one in tmp_path.iterdir()) == [".lock", "config.toml", "credentials.json"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable, match="cannot be written"):
        Profiles(tmp_path / "file" / "sandur").save("work", HERE, None)


def test_commands_that_save_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = [f"profile-{number}" for number in range(8)]
    writers = [
        threading.Thread(target=Profiles(tmp_path).save, args=(name, HERE, credentials(HERE, name))) for name in names
    ]

    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    profiles = Profiles(tmp_path)
    assert sorted(profiles.read().profiles) == names
    assert [found.access_token for name in names if (found := profiles.credentials(name))] == names


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("current = 7")
    (tmp_path / "credentials.json").write_text("{")
    (tmp_path / "credentials.json").chmod(0o600)

    with pytest.raises(BadRequest, match=r"config\.toml: cannot be read"):
        Profiles(tmp_path).read()
    with pytest.raises(BadRequest, match=r"credentials\.json: cannot be read"):
        Profiles(tmp_path).credentials("work")


def test_a_token_is_not_printed_by_accident() -> None:
    assert "a token" not in repr(credentials(HERE))
    assert "again" not in repr(credentials(HERE))


def test_a_relative_configuration_folder_is_ignored() -> None:
    assert user_profiles({"XDG_CONFIG_HOME": "/etc/x"}).folder == Path("/etc/x/sandur")
    assert user_profiles({"XDG_CONFIG_HOME": "x"}).folder == Path.home() / ".config" / "sandur"


def test_a_flag_goes_before_the_environment_and_that_before_the_current_profile(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    profiles.save("work", HERE, None)
    profiles.save("home", THERE, None)

    def server(profile: str | None, server: str | None, **environment: str) -> str:
        return find_target(profiles, profile=profile, server=server, environment=environment).server

    assert server(None, None) == HERE.server
    assert server(None, None, SANDUR_PROFILE="home") == THERE.server
    assert server("work", None, SANDUR_PROFILE="home") == HERE.server
    assert server(None, None, SANDUR_SERVER="https://new.example/") == "https://new.example"
    assert server(None, "https://flag.example", SANDUR_SERVER="https://new.example") == "https://flag.example"
    with pytest.raises(NotFound, match="known profiles: home, work"):
        server("other", None)


def test_another_server_gets_nothing_of_the_profile(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    profiles.save("work", HERE, credentials(HERE))

    target = find_target(profiles, profile="work", server="https://there.example", environment={})

    assert target.profile == Profile(server="https://there.example")


@pytest.mark.parametrize(
    "url", ["", "here", "ftp://here", "http://", "https://ann:secret@here", "https://here/?a=b", "https://here/#a"]
)
def test_what_is_not_the_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        checked_server(url)

"""Every exit code, the forms of output, questions without a terminal, and completion."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import User, ended
from tests.server.logins import ADMIN_SECRET
from tests.server.process import ServerProcess, server_process

HEAD = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"


class OddServer:
    """Answers reads from a table, and treats changes as configured; it counts the idempotency keys of changes."""

    def __init__(self, reads: dict[str, object], change: bytes | None) -> None:
        self.reads = reads
        self.change = change
        self.keys: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65_536)
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.decode().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        while len(body) < int(headers.get("content-length", "0")):
            body += connection.recv(65_536)
        method, path, _ = lines[0].split(" ")
        if method == "GET":
            data = json.dumps(self.reads[path.partition("?")[0]]).encode()
            connection.sendall(HEAD % (b"200 OK", len(data)) + data)
            return
        self.keys.append(headers["idempotency-key"])
        if self.change is not None:
            connection.sendall(self.change)


@pytest.fixture
def odd_server() -> Iterator[OddServer]:
    described = {"name": "main.sales", "kind": "namespace", "id": "1"}
    server = OddServer({"/api/sandur/v1/objects/main/sales": described}, None)
    yield server
    server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    login = {"authentication": "on", "admin_secret": ADMIN_SECRET, "fsync": "never"}
    with server_process(tmp_path_factory.mktemp("codes"), **login) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> str:
    user, store = User(tmp_path / "maker"), str(tmp_path / "store")
    assert user.run("catalog", "create", "other", "--store", store).code == 0
    return store


def test_success_is_0_and_a_failed_request_is_1(user: User, store: str) -> None:
    assert user.run("ls", "--store", store).code == 0
    assert user.run("create", "table", "main.sales.t", "--columns", "id", "--store", store).code == 1
    assert user.run("ls", "--store", store, "--server", "http://127.0.0.1:1").code == 1
    assert user.run("ls", "--store", str(Path(store) / "none")).code == 1


def test_wrong_usage_is_2(user: User) -> None:
    assert user.run("ls", "--nothing").code == 2
    assert user.run("show").code == 2
    assert user.run("history", "main.a.b", "--limit", "0").code == 2


def test_not_found_is_3(user: User, store: str) -> None:
    assert user.run("show", "main.nothing", "--store", store).code == 3
    assert user.run("ls", "--profile", "unknown").code == 3


def test_no_login_and_no_right_are_4(user: User, server: ServerProcess, tmp_path: Path) -> None:
    admin, arguments = User(tmp_path / "admin"), ("--client-secret-stdin", "--server", server.url)
    assert admin.run("login", "--client-id", "admin", *arguments, stdin=ADMIN_SECRET).code == 0
    secret = admin.run("principal", "create", "guest", "--json").json["client_secret"]
    admin.run("grant", "USE CATALOG", "on", "main", "to", "guest")
    guest = User(tmp_path / "guest")
    assert guest.run("login", "--client-id", "guest", *arguments, stdin=secret).code == 0

    anonymous = user.run("ls", "--server", server.url)
    refused = guest.run("create", "namespace", "main.sales")

    assert (anonymous.code, "sandur login" in anonymous.err) == (4, True)
    assert (refused.code, "CREATE SCHEMA" in refused.err) == (4, True)


def test_a_conflict_is_5(user: User, store: str) -> None:
    user.run("create", "namespace", "main.sales", "--store", store)
    user.run("create", "table", "main.sales.t", "--columns", "id INT", "--store", store)

    assert user.run("create", "namespace", "main.sales", "--store", store).code == 5
    assert user.run("drop", "main.sales", "--yes", "--store", store).code == 5
    assert user.run("create", "catalog", "other", "--store", store).code == 5
    assert user.run("create", "volume", "main.sales.v", "--store", store).code == 0
    assert user.run("create", "volume", "main.sales.v", "--store", store).code == 5


def test_a_lost_answer_is_sent_again_with_the_same_key_and_is_6(user: User, odd_server: OddServer) -> None:
    done = user.run("set", "main.sales", "a=b", "--server", odd_server.url)

    assert (done.code, "look whether it was made" in done.err) == (6, True), done.err
    assert len(odd_server.keys) == 3
    assert len(set(odd_server.keys)) == 1


def test_an_unknown_outcome_that_the_server_reports_is_6(user: User, odd_server: OddServer) -> None:
    problem = json.dumps({"error": {"message": "lost", "type": "CommitStateUnknownException", "code": 500}}).encode()
    odd_server.change = HEAD % (b"500 Internal Server Error", len(problem)) + problem

    assert user.run("set", "main.sales", "a=b", "--server", odd_server.url).code == 6


def test_a_server_that_is_not_there_is_7(user: User, odd_server: OddServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    problem = b'{"error":{"message":"busy","type":"SlowDownException","code":503}}'
    odd_server.change = HEAD % (b"503 Service Unavailable", len(problem)) + problem

    assert user.run("ls", "--server", address).code == 7
    assert user.run("set", "main.sales", "a=b", "--server", odd_server.url).code == 7


def test_an_interrupt_is_130(user: User) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = user.start("ls", "--server", f"http://127.0.0.1:{silent.getsockname()[1]}")
        connection, _ = silent.accept()  # The command waits for the answer now.
        process.send_signal(signal.SIGINT)
        done = ended(process)
        connection.close()

    assert (done.code, "Traceback" in done.err) == (130, False), done.err


def test_nothing_is_asked_without_a_terminal(user: User, store: str) -> None:
    user.run("create", "namespace", "main.sales", "--store", store)

    done = user.run("drop", "main.sales", "--store", store, stdin="y\n")

    assert (done.code, "pass --yes" in done.err) == (1, True)
    assert user.run("show", "main.sales", "--store", store).code == 0


def test_people_see_a_table_and_programs_whole_lines(tmp_path: Path, store: str) -> None:
    comment = "c" * 300 + "\x1b[31m\tred"
    plain, colored = User(tmp_path / "a"), User(tmp_path / "b", FORCE_COLOR="1", COLUMNS="300")
    dull = User(tmp_path / "c", FORCE_COLOR="1", NO_COLOR="1", COLUMNS="80")
    plain.run("create", "namespace", "main.sales", "--comment", comment, "--store", store)

    lines = plain.run("ls", "main", "-l", "--store", store).out.splitlines()
    table = colored.run("ls", "main", "-l", "--store", store).out

    assert lines[0].split("\t")[:3] == ["name", "kind", "format"]
    assert "c" * 300 + "\\x1b[31m\\tred" in lines[1].split("\t")
    assert "main.sales" in table
    assert "─" in table
    assert "\x1b[31m" not in table
    assert "\x1b[3" not in dull.run("ls", "main", "--store", store).out


def test_names_are_completed_from_the_target_and_then_from_the_cache(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandur.cli import completion  # noqa: PLC0415 - reads the environment

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(completion, "_SECONDS_MAX", 30)  # This machine may be busy.
    for name in ("sales", "salt"):
        User(tmp_path / "u").run("create", "namespace", f"main.{name}", "--store", store)

    class Context:
        params = {"store": store}  # noqa: RUF012 - a stand-in for the context of the shell

    def complete(text: str) -> list[str]:
        return completion.complete_name(Context(), text)  # type: ignore[arg-type] # has what is read

    assert complete("ma") == ["main"]
    assert complete("main.sal") == ["main.sales", "main.salt"]
    assert completion.complete_container(Context(), "ot") == ["other"]  # type: ignore[arg-type] # as above
    os.rename(store, f"{store}.gone")  # noqa: PTH104 - a folder
    assert complete("main.sal") == ["main.sales", "main.salt"]
    assert complete("other.x") == []
    assert complete("broken..") == []


def test_what_was_dropped_is_listed_and_brought_back(user: User, odd_server: OddServer) -> None:
    dropped = {"full_name": "main.sales.t", "kind": "table", "uuid": "u"}
    odd_server.reads["/api/sandur/v1/dropped"] = {"dropped": [dropped], "next_page_token": None}
    made = b'{"kind":"table","full_name":"main.sales.t2","uuid":"u"}'
    odd_server.change = HEAD % (b"200 OK", len(made)) + made

    listed = user.run("dropped", "main.sales", "--server", odd_server.url)
    done = user.run("undrop", "main.sales.t", "--name", "t2", "--id", "u", "--server", odd_server.url)

    assert listed.out.splitlines() == ["full name\tkind\tuuid", "main.sales.t\ttable\tu"]
    assert (done.code, "Brought back table main.sales.t2." in done.err) == (0, True), done.err
    assert user.run("undrop", "main.sales", "--server", odd_server.url).code == 1


def test_open_prints_the_page_of_a_name(user: User, odd_server: OddServer) -> None:
    done = user.run("open", "main.sales", "--print", "--server", odd_server.url)
    on_store = user.run("open", "--store", "memory:")

    assert done.out.strip() == f"{odd_server.url}/ui/data/main/sales"
    assert on_store.code == 1

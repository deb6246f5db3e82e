"""The services of the Compose file as processes: the same commands, settings and files, on free ports of loopback."""

import html
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import httpx
import pytest
import yaml  # type: ignore[import-untyped] # No types are published with it.

from tests.interop.engines.environments import NotInstalled, java_home, maven_files
from tests.servers.processes import free_ports, running

COMPOSE: Final = Path(__file__).parent.parent.parent / "deploy" / "compose"
PORTS: Final = ("8080", "8181", "8333", "8380", "8888", "9090", "9181", "9333")
PROMETHEUS: Final = shutil.which("prometheus")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Composition(NamedTuple):
    """The running services. `ports` leads from a port of the file to the one that is used here."""

    services: Mapping[str, Any]
    ports: Mapping[str, str]
    folder: Path

    def url(self, port: str) -> str:
        return f"http://localhost:{self.ports[port]}"

    def text(self, name: str) -> str:
        """A file of the composition, with the ports that are used here."""
        return moved((COMPOSE / name).read_text(encoding="utf-8"), self.ports)


def moved(text: str, ports: Mapping[str, str]) -> str:
    return re.sub(rf"(?<!\d)({'|'.join(ports)})(?!\d)", lambda match: ports[match[0]], text)


@pytest.fixture(scope="module")
def composition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    folder = tmp_path_factory.mktemp("compose")
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    document = yaml.safe_load(moved((COMPOSE / "compose.yaml").read_text(encoding="utf-8"), ports))
    made = Composition(document["services"], ports, folder)
    try:
        java, (archive,) = java_home(17), maven_files("keycloak").glob("*.tar.gz")
    except NotInstalled as error:
        pytest.skip(str(error))
    with store(made), provider(made, java, archive), catalog(made):
        yield made


def store(made: Composition) -> Any:
    folder = made.folder / "store"
    folder.mkdir()
    shutil.copy(COMPOSE / "s3.json", folder)
    command = made.services["store"]["command"].replace("/data", str(folder))
    command = command.replace("/etc/seaweedfs", str(folder)).replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - not here
    weed = Path(sys.executable).with_name("weed")
    answers = next(word for word in made.services["store"]["healthcheck"]["test"] if word.startswith("http"))
    return running([weed, *command.split()], answers=answers, is_ready=lambda: makes_bucket(made), folder=folder)


def makes_bucket(made: Composition) -> bool:
    """Whether the service that makes the bucket succeeds; Compose starts the catalog only then."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command: list[str] = made.services["bucket"]["entrypoint"]
    return subprocess.run(command, env={**os.environ, "PATH": path}, timeout=60, check=False).returncode == 0


def provider(made: Composition, java: Path, archive: Path) -> Any:
    folder = made.folder / "provider"
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (home,) = folder.iterdir()
    (home / "data" / "import").mkdir(parents=True)
    (home / "data" / "import" / "realm.json").write_text(made.text("realm.json"), encoding="utf-8")
    service = made.services["identity"]
    environment = {**os.environ, **service["environment"], "JAVA_HOME": str(java), "KC_HTTP_HOST": "127.0.0.1"}
    command: list[str | Path] = ["/bin/bash", home / "bin" / "kc.sh", *service["command"].split()]
    answers = f"{made.url('8080')}/realms/sandur/.well-known/openid-configuration"
    return running(
        command, answers=answers, is_ready=lambda: httpx.get(answers).is_success, folder=folder, environment=environment
    )


def catalog(made: Composition) -> Any:
    folder = made.folder / "catalog"
    folder.mkdir()
    local = {"SANDUR_HOST": "127.0.0.1", "SANDUR_PORT": made.ports["8181"], "SANDUR_METRICS_HOST": "127.0.0.1"}
    environment = {**os.environ, **made.services["catalog"]["environment"], **local}
    command: list[str | Path] = [Path(sys.executable).with_name("sandur"), "serve"]
    return running(command, answers=f"{made.url('8181')}/readyz", folder=folder, environment=environment)


def test_the_services_start_again_on_a_bucket_that_exists(composition: Composition) -> None:
    assert makes_bucket(composition)


def test_a_person_of_the_realm_logs_in_to_the_web_ui(composition: Composition) -> None:
    # As browsers do, it sends secure cookies to localhost without TLS.
    cookies = CookieJar(DefaultCookiePolicy(secure_protocols=("http", "https")))
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))

    def opened(url: str, form: Mapping[str, str] | None = None) -> tuple[str, str]:
        with browser.open(url, urlencode(form).encode() if form else None, timeout=60) as answer:
            return answer.url, answer.read().decode()

    _, login = opened(f"{composition.url('8181')}/ui/login?next=/ui/me")
    link = next(one for one in re.findall(r'href="([^"]*)"', login) if "provider=" in one)
    _, form = opened(composition.url("8181") + html.unescape(link))
    action = html.unescape(re.findall(r'action="([^"]+)"', form)[0])
    address, page = opened(action, {"username": "ann", "password": "ann"})

    assert address.endswith("/ui/me")
    assert "<dt>Name</dt><dd>ann</dd>" in page


def test_the_administrator_makes_a_table_whose_files_the_server_signs(composition: Composition) -> None:
    secret = composition.services["catalog"]["environment"]["SANDUR_ADMIN_SECRET"]
    login = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": secret}
    with httpx.Client(base_url=composition.url("8181"), timeout=60) as client:
        token = client.post("/v1/oauth/tokens", data=login).raise_for_status().json()["access_token"]
        client.headers = httpx.Headers({"Authorization": f"Bearer {token}"})
        client.post("/v1/main/namespaces", json={"namespace": ["ns"]}).raise_for_status()
        columns = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
        made = client.post(
            "/v1/main/namespaces/ns/tables",
            json={"name": "t", "schema": columns},
            headers={"X-Iceberg-Access-Delegation": "remote-signing"},
        ).raise_for_status()
        location = made.json()["metadata"]["location"]
        file = location.replace("s3://", f"{composition.url('8333')}/", 1) + "/data/1.parquet"
        wanted = {"method": "PUT", "region": "us-east-1", "uri": file, "headers": {}}
        signed = client.post("/v1/main/namespaces/ns/tables/t/sign", json=wanted).raise_for_status().json()
    headers = {name: ", ".join(values) for name, values in signed["headers"].items()}

    assert location.startswith("s3://lake/catalog/")
    assert httpx.put(signed["uri"], headers=headers, content=b"rows", timeout=60).status_code == 200
    assert httpx.put(file, content=b"rows", timeout=60).status_code == 403


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
def test_prometheus_reads_the_catalog_and_knows_its_alerts(composition: Composition) -> None:
    folder = composition.folder / "metrics"
    folder.mkdir()
    text = composition.text("prometheus.yaml").replace("identity:", "localhost:").replace("15s", "1s")
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    shutil.copy(COMPOSE.parent / "prometheus" / "sandur.rules.yaml", folder)
    assert PROMETHEUS
    url = f"http://127.0.0.1:{composition.ports['9090']}"
    command = [PROMETHEUS, "--config.file=prometheus.yml", f"--web.listen-address={url.removeprefix('http://')}"]
    with running([*command, "--storage.tsdb.path=data"], answers=f"{url}/-/ready", folder=folder):
        rules = httpx.get(f"{url}/api/v1/rules", timeout=60).json()["data"]["groups"]
        deadline = time.monotonic() + 60
        found: list[Any] = []
        while not found and time.monotonic() < deadline:
            query = {"query": "sum(sandur_build_info)"}
            found = httpx.get(f"{url}/api/v1/query", params=query, timeout=60).json()["data"]["result"]

    assert sum(len(group["rules"]) for group in rules) > 15
    assert found[0]["value"][1] == "1"

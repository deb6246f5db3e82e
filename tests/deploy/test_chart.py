"""The Helm chart, the Compose file and the systemd unit: rendered, validated, and true to the settings."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml  # type: ignore[import-untyped] # No types are published with it.

from checks.release import build_chart
from sandur.setting_sources import environment_variable, load_settings, setting_keys
from sandur.settings import GrpcSettings, Settings
from tests.deploy.test_monitoring import needs_promtool, promtool

REPOSITORY: Final = Path(__file__).parent.parent.parent
DEPLOY: Final = REPOSITORY / "deploy"
CHART: Final = DEPLOY / "chart"
TOOLS: Final = REPOSITORY / ".tools"
KUBERNETES: Final = "1.31.0"


def tool(name: str) -> str | None:
    """A program of the machine, or one that `make deploy` installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, TOOLS.glob("*/bin"))]))


HELM: Final = tool("helm")
SYSTEMD: Final = shutil.which("systemd-analyze")
VALIDATE: Final = tool("kubernetes-validate")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed (make deploy installs it, with Go)")
ALL: Final = {
    "grpc.enabled": "true",
    "settings.grpc.allow_plaintext": "true",
    "extraVolumeMounts[0].mountPath": "/etc/sandur-tls",
    "extraVolumeMounts[0].name": "tls",
    "extraVolumes[0].name": "tls",
    "extraVolumes[0].secret.secretName": "catalog-tls",
    "imagePullSecrets[0].name": "registry",
    "ingress.enabled": "true",
    "metrics.serviceMonitor.enabled": "true",
    "networkPolicy.enabled": "true",
    "pipeline.enabled": "true",
    "pipeline.nodeSelector.pool": "spark",
    "pipeline.tolerations[0].key": "spark",
    "pipeline.tolerations[0].operator": "Exists",
    "secrets.values.SANDUR_ADMIN_SECRET": "secret",
    "serviceAccount.annotations.role": "catalog",
}


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def template(chart: Path = CHART, /, *further: str | Path, **values: str) -> str:
    assert HELM
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    return run(HELM, "template", "catalog", chart, "--kube-version", KUBERNETES, *further, *given)


@pytest.fixture
def render(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The objects of the chart with the given values."""

    def rendered(**values: object) -> dict[str, Any]:
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values), encoding="utf-8")
        return objects(template(CHART, "--values", file))

    return rendered


def read_settings(found: Mapping[str, Any], folder: Path) -> Settings:
    """What a server or a pipeline of these objects reads: the file, the image's variables, and those of the pod."""
    config = folder / "sandur.toml"
    config.write_text(found["ConfigMap/catalog"]["data"]["sandur.toml"], encoding="utf-8")
    (server,) = found["Deployment/catalog"]["spec"]["template"]["spec"]["containers"]
    own = {one["name"]: one["value"] for one in server["env"]}
    return load_settings(file=config, environment={**environment_of_the_image(), **own})


def objects(text: str) -> dict[str, Any]:
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(text) if one}


def environment_of_the_image() -> dict[str, str]:
    """The variables that the image sets."""
    (line,) = re.findall(r"(?m)^ENV (.*)$", (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " "))
    return dict(part.split("=", 1) for part in line.split())


def test_the_image_leaves_the_store_to_a_file_of_settings() -> None:
    assert "SANDUR_STORE" not in environment_of_the_image()  # The environment overrides the file.


@needs_helm
def test_the_chart_passes_lint() -> None:
    assert HELM
    assert "0 chart(s) failed" in run(HELM, "lint", "--strict", CHART)


@needs_helm
def test_helm_reads_the_chart_of_a_release(tmp_path: Path) -> None:
    released = build_chart(CHART, tmp_path / "sandur-0.1.0.tgz", 1_700_000_000)

    assert template(released) == template()


@needs_helm
@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_every_object_of_the_chart_is_valid(kind: str, tmp_path: Path) -> None:
    if VALIDATE is None:
        pytest.skip("kubernetes-validate is not installed (make deploy installs it)")
    file = tmp_path / "rendered.yaml"
    file.write_text(template(**ALL, **{"pipeline.kind": kind}), encoding="utf-8")

    printed = run(VALIDATE, "-k", "1.31", "--strict", file)

    assert printed.count(" passed ") == len(objects(file.read_text())) - 1  # It has no schema of a ServiceMonitor.


@needs_helm
def test_the_server_of_the_chart_is_confined_probed_and_configured(tmp_path: Path) -> None:
    found = objects(template(**ALL))
    pod = found["Deployment/catalog"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]

    settings = read_settings(found, tmp_path)

    assert (settings.host, settings.port, settings.metrics_host, settings.log_format) == (
        *("0.0.0.0", 8181, "0.0.0.0"),  # noqa: S104 - within a pod
        "json",
    )
    assert (settings.store, settings.workers, settings.authentication) == ("s3://lake/catalog", 2, "on")
    assert (settings.metrics_port, settings.grpc.port, settings.s3.region) == (9181, 8182, "us-east-1")
    assert pod["securityContext"]["runAsUser"] == 10001
    assert server["securityContext"]["readOnlyRootFilesystem"] is True
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert server["envFrom"] == [{"secretRef": {"name": "catalog"}}]
    assert found["ServiceAccount/catalog"]["metadata"]["annotations"] == {"role": "catalog"}
    assert {one.partition("/")[0] for one in found} == {
        *("ConfigMap", "CronJob", "Deployment", "Ingress", "NetworkPolicy", "PodDisruptionBudget", "Secret"),
        *("Service", "ServiceAccount", "ServiceMonitor"),
    }


PROVIDER: Final[Mapping[str, object]] = {
    "issuer": "https://login.example.com/realms/lake?a=1&b=<2>",
    "audience": "sandur",
    "name": 'Login "A"\\B',
    "algorithms": ["RS256", "ES256"],
    "token_lifetime_max": "PT12H",
}
SETTINGS: Final[Mapping[str, object]] = {
    "store": "s3://lake/catalog",
    "workers": 3,
    "authentication": "on",
    "janitors": False,
    "log_format": "text",
    "plan_cache_bytes_max": 34_359_738_368,
    "traces_sampled": 0.25,
    "audit_reads_sampled": 1e-6,
    "allowed_hosts": ["catalog.example.com", "localhost"],
    "oidc": [PROVIDER, {"issuer": "https://other.example.com", "audience": "lake"}],
    "s3": {"region": "eu-west-1", "path_style": False},
    "retry": {"retries_share": 1},
    "opa": {"url": "https://opa.example.com", "timeout": "PT1S"},
}


@needs_helm
def test_every_kind_of_setting_of_the_chart_is_read_as_it_was_given(
    render: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    settings = read_settings(render(settings=SETTINGS), tmp_path)

    of_the_chart = {"host": "0.0.0.0", "port": 8181, "metrics_host": "0.0.0.0", "metrics_port": 9181}  # noqa: S104 - a pod's
    assert settings == msgspec.convert({**SETTINGS, **of_the_chart}, Settings)
    assert settings.oidc[0].name == PROVIDER["name"]


@needs_helm
@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_with_the_values_of_the_page_grpc_reads_its_certificate_from_a_volume_of_every_pod(
    kind: str, render: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs" / "deployment.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"(?ms)^```yaml\n(grpc:.*?)^```$", page)
    values = yaml.safe_load(example)
    (volume,), (mount,) = values["extraVolumes"], values["extraVolumeMounts"]

    found = render(**values, pipeline={"enabled": True, "kind": kind})

    settings = read_settings(found, tmp_path)
    assert settings.grpc == msgspec.convert({"port": 8182, **values["settings"]["grpc"]}, GrpcSettings)
    assert Path(settings.grpc.certificate).parent == Path(mount["mountPath"])
    assert settings.oidc[0].audience == "sandur"
    assert settings.s3.region == "us-east-1"  # The values of the chart that were not given stay.
    for pod in (found["Deployment/catalog"]["spec"]["template"]["spec"], pipeline_pod(found, kind)):
        (container,) = pod["containers"]
        assert volume in pod["volumes"]
        assert mount in container["volumeMounts"]
        assert {one["name"] for one in pod["volumes"]} == {one["name"] for one in container["volumeMounts"]}
    ports = {one["name"]: one["port"] for one in found["Service/catalog"]["spec"]["ports"]}
    assert ports["grpc"] == 8182


def pipeline_pod(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    spec = found[f"{kind}/catalog-pipeline"]["spec"]
    pod: dict[str, Any] = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
    return pod


PLACEMENT: Final[Mapping[str, Any]] = {
    "nodeSelector": {"pool": "spark"},
    "tolerations": [{"key": "spark", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
}


@needs_helm
@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_pods_of_the_pipeline_have_secrets_for_images_and_places_of_their_own(
    kind: str, render: Callable[..., dict[str, Any]]
) -> None:
    secrets = [{"name": "registry"}]

    found = render(
        imagePullSecrets=secrets,
        nodeSelector={"pool": "servers"},
        pipeline={"enabled": True, "kind": kind, **PLACEMENT},
    )

    server, pipeline = found["Deployment/catalog"]["spec"]["template"]["spec"], pipeline_pod(found, kind)
    assert server["imagePullSecrets"] == pipeline["imagePullSecrets"] == secrets
    assert server["nodeSelector"] == {"pool": "servers"}
    assert {key: pipeline[key] for key in PLACEMENT} == PLACEMENT


@needs_helm
def test_changed_settings_start_the_pods_of_servers_and_of_the_pipeline_again(
    render: Callable[..., dict[str, Any]],
) -> None:
    def checksums(region: str) -> list[str]:
        found = render(settings={"s3": {"region": region}}, pipeline={"enabled": True, "kind": "Deployment"})
        pods = [found[f"Deployment/{name}"]["spec"]["template"] for name in ("catalog", "catalog-pipeline")]
        return [pod["metadata"]["annotations"]["checksum/config"] for pod in pods]

    before, again, after = checksums("one"), checksums("one"), checksums("other")

    assert before == again
    assert not set(before) & set(after)


@needs_helm
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"settings.host": "127.0.0.1"}, "settings.host: the chart sets it; change service"),
        ({"settings.port": "80"}, "settings.port: the chart sets it; change service.port"),
        ({"settings.metrics_host": "127.0.0.1"}, "settings.metrics_host: the chart sets it; change metrics.port"),
        ({"settings.metrics_port": "1"}, "settings.metrics_port: the chart sets it; change metrics.port"),
        ({"grpc.enabled": "true"}, "grpc.enabled needs settings.grpc.certificate"),
        (
            {"grpc.enabled": "true", "settings.grpc.allow_plaintext": "true", "settings.grpc.port": "1"},
            "settings.grpc.port: the chart sets it; change grpc.port",
        ),
    ],
)
def test_values_that_could_not_work_are_refused_with_the_reason(values: Mapping[str, str], reason: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(reason)):
        template(**values)


@needs_helm
def test_the_spark_operator_takes_the_place_of_the_cron_job(
    render: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    operator = {"enabled": True, "packages": ["org.example:one:1"]}
    found = render(
        imagePullSecrets=[{"name": "registry"}],
        extraVolumes=[{"name": "ca", "configMap": {"name": "ca"}}],
        extraVolumeMounts=[{"name": "ca", "mountPath": "/etc/ca"}],
        pipeline={"enabled": True, "sparkOperator": operator, **PLACEMENT},
    )
    job = found["ScheduledSparkApplication/catalog-pipeline"]["spec"]["template"]
    folder, _, name = job["mainApplicationFile"].removeprefix("local://").rpartition("/")
    program = tmp_path / name
    program.write_text(found["ConfigMap/catalog"]["data"][name], encoding="utf-8")

    assert program.suffix == ".py"  # Else Spark takes it for a program in Java.
    for pod in (job["driver"], job["executor"]):
        assert [mount["mountPath"] for mount in pod["volumeMounts"]] == [folder, "/tmp", "/etc/ca"]  # noqa: S108 - a pod's
        assert {mount["name"] for mount in pod["volumeMounts"]} == {volume["name"] for volume in job["volumes"]}
        assert {key: pod[key] for key in PLACEMENT} == PLACEMENT
    assert job["imagePullSecrets"] == ["registry"]
    assert "--master" in run(sys.executable, program, *job["arguments"][:1], "--help")
    assert job["deps"] == {"packages": ["org.example:one:1"]}
    assert "CronJob/catalog-pipeline" not in found


def test_every_setting_of_the_compose_file_exists_and_its_services_refer_to_each_other() -> None:
    document = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    services = document["services"]
    environment: dict[str, str] = services["catalog"]["environment"]

    settings = load_settings(environment=environment)

    assert set(environment) <= {environment_variable(key) for key in setting_keys()}
    assert settings.oidc[0].audience == "sandur"
    assert settings.s3.access == "sign"
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= {*services}, name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in document["volumes"] or (DEPLOY / "compose" / source).is_file(), volume
    assert services["catalog"]["network_mode"] == "service:identity"


@needs_promtool
def test_prometheus_accepts_the_configuration_of_the_compose_file() -> None:
    checked = promtool("check", "config", "--syntax-only", str(DEPLOY / "compose" / "prometheus.yaml"))

    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "sandur.service").read_text(encoding="utf-8")
    unit = tmp_path / "sandur.service"
    # It checks that the program exists.
    unit.write_text(re.sub(r"/opt/sandur/bin/sandur\b", sys.executable, text), encoding="utf-8")

    assert SYSTEMD
    checked = subprocess.run([SYSTEMD, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)

    assert checked.returncode == 0, checked.stderr
    assert "sandur.service" not in checked.stderr

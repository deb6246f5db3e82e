"""The Helm chart, the Compose file and the systemd unit: rendered, validated, and true to the settings."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped] # No types are published with it.

from checks.release import build_chart
from sandur.settings import environment_variable, load_settings, setting_keys
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
    "ingress.enabled": "true",
    "metrics.serviceMonitor.enabled": "true",
    "networkPolicy.enabled": "true",
    "pipeline.enabled": "true",
    "secrets.values.SANDUR_ADMIN_SECRET": "secret",
    "serviceAccount.annotations.role": "catalog",
}


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def template(chart: Path = CHART, /, **values: str) -> str:
    assert HELM
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    return run(HELM, "template", "catalog", chart, "--kube-version", KUBERNETES, *given)


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
    config = tmp_path / "sandur.toml"
    config.write_text(found["ConfigMap/catalog"]["data"]["sandur.toml"], encoding="utf-8")

    settings = load_settings(file=config, environment=environment_of_the_image())

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


@needs_helm
def test_the_spark_operator_takes_the_place_of_the_cron_job(tmp_path: Path) -> None:
    packages = {"pipeline.sparkOperator.packages[0]": "org.example:one:1"}
    found = objects(template(**ALL, **packages, **{"pipeline.sparkOperator.enabled": "true"}))
    job = found["ScheduledSparkApplication/catalog-pipeline"]["spec"]["template"]
    folder, _, name = job["mainApplicationFile"].removeprefix("local://").rpartition("/")
    program = tmp_path / name
    program.write_text(found["ConfigMap/catalog"]["data"][name], encoding="utf-8")

    assert program.suffix == ".py"  # Else Spark takes it for a program in Java.
    assert [mount["mountPath"] for mount in job["driver"]["volumeMounts"]] == [folder]
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

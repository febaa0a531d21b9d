"""The container image, the compose file and the Kubernetes manifests are valid, as far as no container engine is needed.

Every check is also run on a broken file, so that a checker that accepts everything would be noticed.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.serving import COMMAND, environment, server_entry, wait_until, write_json
from toolcrib.config.parser import parse_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VARIABLES = {"TOOLCRIB_STORE": "sqlite://", "TOOLCRIB_KEY": "k" * 32, "TOOLCRIB_SECRET_KEY": "s" * 32}


def run_tool(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a checker that is installed in this environment."""
    folder = Path(sys.executable).parent
    program = shutil.which(command[0], path=str(folder))
    assert program, f"{command[0]} is not installed; install the dependency group dev"
    return subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)


def change_copy(path: Path, folder: Path, old: str, new: str) -> str:
    """Copy a file with one change; return the path of the copy."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    copy = folder / path.name
    copy.write_text(text.replace(old, new, 1), encoding="utf-8")
    return str(copy)


def read_dockerfile(instruction: str) -> list[str]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^{instruction} (.*)$", text, re.MULTILINE)


def test_linter_accepts_the_dockerfile(tmp_path: Path) -> None:
    checked = run_tool("hadolint", str(ROOT / "Dockerfile"))
    assert checked.returncode == 0, checked.stdout
    root_user = change_copy(ROOT / "Dockerfile", tmp_path, "USER 10001", "USER root")
    assert "DL3002" in run_tool("hadolint", root_user).stdout


def test_image_copies_files_that_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    sources = {
        source for line in read_dockerfile("COPY") if not line.startswith("--from") for source in line.split()[:-1]
    }
    assert {source for source in sources if not (ROOT / source).exists()} == set()
    assert sources == kept


def test_image_installs_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.findall(r"\.\[([\w,]+)\]", "\n".join(read_dockerfile("RUN")))[0].split(",")
    assert set(extras) <= project["optional-dependencies"].keys()


def test_image_runs_as_a_user_that_is_not_root() -> None:
    assert read_dockerfile("USER") == ["10001"]
    containers = yaml.safe_load((DEPLOY / "kubernetes/deployment.yaml").read_text())["spec"]["template"]["spec"]
    assert containers["securityContext"]["runAsUser"] == 10001


def test_compose_file_matches_the_schema(tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    checked = run_tool(*check, str(DEPLOY / "compose.yaml"))
    assert checked.returncode == 0, checked.stdout
    assert run_tool(*check, change_copy(DEPLOY / "compose.yaml", tmp_path, "depends_on:", "dependson:")).returncode


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_matches_the_schema_of_kubernetes(path: Path, tmp_path: Path) -> None:
    checked = run_tool("kubernetes-validate", "--strict", str(path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    broken = change_copy(path, tmp_path, "metadata:", "metadataa:")
    assert run_tool("kubernetes-validate", "--strict", broken).returncode


def list_configurations() -> list[Any]:
    manifest = yaml.safe_load((DEPLOY / "kubernetes/configmap.yaml").read_text(encoding="utf-8"))
    texts = [(DEPLOY / "toolcrib.json").read_text(encoding="utf-8"), manifest["data"]["toolcrib.json"]]
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("document", list_configurations(), ids=["compose", "kubernetes"])
def test_configuration_is_valid_and_uses_the_given_variables(document: Any) -> None:
    config = parse_config(document, environment=VARIABLES)
    assert config.store == VARIABLES["TOOLCRIB_STORE"]
    assert len(config.auth.keys) == 1
    assert config.http.drain_seconds > 0


def test_containers_are_stopped_after_the_gateway_has_drained() -> None:
    compose, kubernetes = (document["http"] for document in list_configurations())
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["toolcrib"]
    pod = yaml.safe_load((DEPLOY / "kubernetes/deployment.yaml").read_text(encoding="utf-8"))["spec"]["template"][
        "spec"
    ]
    assert int(service["stop_grace_period"].removesuffix("s")) > compose["drainSeconds"] + compose["shutdownSeconds"]
    assert pod["terminationGracePeriodSeconds"] > kubernetes["drainSeconds"] + kubernetes["shutdownSeconds"]


def test_the_proxy_accepts_its_configuration() -> None:
    haproxy = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if haproxy is None:
        pytest.skip("HAProxy is not installed")
    checked = subprocess.run([haproxy, "-c", "-f", str(DEPLOY / "haproxy.cfg")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_command_of_the_image_serves_and_its_health_check_notices(tmp_path: Path) -> None:
    """Run the command and the health check of the image without a container."""
    (entrypoint,), (arguments,) = (list(map(json.loads, read_dockerfile(name))) for name in ("ENTRYPOINT", "CMD"))
    assert entrypoint == ["toolcrib"]
    document = list_configurations()[0]
    document["mcpServers"] = {"one": server_entry("echo")}
    config = write_json(tmp_path / "toolcrib.json", document)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(config) if argument.endswith("toolcrib.json") else argument for argument in arguments]
    health_check = [sys.executable, str(DEPLOY / "healthcheck.py"), f"http://127.0.0.1:{port}/ready"]
    assert subprocess.run(health_check, capture_output=True, check=False).returncode == 1
    command = [*COMMAND, *arguments, "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment(**VARIABLES), stdout=log, stderr=log, cwd=tmp_path)
        try:
            wait_until(lambda: subprocess.run(health_check, capture_output=True, check=False).returncode == 0, 60)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()

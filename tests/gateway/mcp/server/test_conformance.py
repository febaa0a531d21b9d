"""The official conformance suite, against a server directly and through the gateway.

Every check that passes for the server must pass through the gateway, except those listed with a
reason in `conformance.json`. Set TOOLCRIB_CONFORMANCE to 1 to run these tests, or to a folder that
caches the npm packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.gateway_process import REPOSITORY, run_gateway, run_process, wait_for, write_config
from tests.support.npm import NODE, install_folder, install_packages, node_binary
from tests.support.ports import find_free_port

SUITE: Final = "@modelcontextprotocol/conformance"
PACKAGES: Final = (f"{SUITE}@0.2.0-alpha.12", f"{NODE}@latest")
VERSIONS: Final = ("2025-11-25", "2026-07-28")
EXPECTED: Final = Path(__file__).with_name("conformance.json")
SCENARIO_MILLISECONDS: Final = 120_000
EVERYTHING: Final = ["-m", "tests.support.everything"]

Checks = dict[tuple[str, str], bool]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install_folder("TOOLCRIB_CONFORMANCE", tmp_path_factory.mktemp("npm"))
    return install_packages(folder, PACKAGES)


def build_conformance_config(mode: str) -> dict[str, object]:
    """Return a configuration with a server that implements everything, without prefixes."""
    server = {"command": sys.executable, "args": EVERYTHING, "cwd": str(REPOSITORY), "connectSeconds": 600}
    return {
        "mcpServers": {"everything": server},
        "toolSearch": {"mode": mode, "prefix": False, "maxToolsLimit": 5},
        # One of the tools changes the tool list with each call.
        "safety": {"changed": "warn"},
        "store": "sqlite://",
    }


@contextmanager
def run_server(folder: Path) -> Iterator[str]:
    """Run the server without a gateway; yield its URL."""
    port, log = find_free_port(), folder / "server.log"
    address = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        try:
            urllib.request.urlopen(address, timeout=60).close()
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except OSError:
            return False
        return True

    with run_process([sys.executable, *EVERYTHING, str(port)], log) as process:
        wait_for(is_up, process, log)
        yield address


def run_suite(modules: Path, address: str, version: str, folder: Path) -> Checks:
    """Run the suite; return whether each check of each scenario passed."""
    out = folder / version
    command = [node_binary(modules), str(modules / SUITE / "dist" / "index.js"), "server"]
    subprocess.run(
        [
            *(*command, "--url", f"{address}/mcp", "--suite", "all", "--spec-version", version),
            *("--timeout", str(SCENARIO_MILLISECONDS), "--output-dir", str(out)),
        ],
        capture_output=True,
        check=False,
    )
    checks: Checks = {}
    for results in sorted(out.glob("*/checks.json")):
        scenario = results.parent.name.removeprefix("server-")[: -len("-2026-01-01T00-00-00-000Z")]
        for check in json.loads(results.read_text(encoding="utf-8")):
            key = (scenario, str(check["id"]))
            if check["status"] in ("SUCCESS", "FAILURE", "WARNING"):
                checks[key] = checks.get(key, True) and check["status"] == "SUCCESS"
    return checks


def test_server_passes_all_checks(modules: Path, tmp_path: Path) -> None:
    with run_server(tmp_path) as address:
        for version in VERSIONS:
            checks = run_suite(modules, address, version, tmp_path)
            assert len(checks) > 60
            assert [key for key, passed in checks.items() if not passed] == []


@pytest.mark.parametrize("mode", ["direct", "search", "dynamic"])
def test_gateway_passes_the_checks_of_the_server(modules: Path, tmp_path: Path, mode: str) -> None:
    expected: dict[str, dict[str, dict[str, str]]] = json.loads(EXPECTED.read_text())
    path = write_config(tmp_path, build_conformance_config(mode))
    with run_gateway(path, servers=1) as address:
        for version in VERSIONS:
            checks = run_suite(modules, address, version, tmp_path)
            failed = {f"{scenario}: {check}" for (scenario, check), passed in checks.items() if not passed}
            assert len(checks) > 60
            assert failed == set(expected[mode][version])

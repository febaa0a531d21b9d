from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.console.browser import open_context, running_browser, watch_errors
from tests.console.showcase import CATALOGS, write_showcase
from tests.gateway.serving import GatewayProcess, running_gateway, wait_until


# Package scope: the browser's event loop must be closed before the tests of other packages start theirs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def showcase(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the gateway: toolcrib.json, and the tools of each server in `NAME.tools.json`."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the gateway's user, without files of clients."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="package")
def gateway(showcase: Path, home: Path) -> Iterator[GatewayProcess]:
    """A gateway without keys: five small servers, and one that fails."""
    config = write_showcase(showcase)
    with running_gateway(showcase, "--config", str(config), HOME=str(home)) as gateway:
        wait_until(lambda: all(gateway.servers()[name]["state"] == "started" for name in CATALOGS))
        wait_until(lambda: gateway.servers()["warehouse"]["trouble"])
        yield gateway


@pytest.fixture
def page(browser: Browser, gateway: GatewayProcess) -> Iterator[Page]:
    """A new tab. The test fails if a script fails or violates the security policy."""
    with open_context(browser, gateway.url, permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        errors = watch_errors(page)
        yield page
        assert errors == []


def edit_tools(folder: Path, server: str, **descriptions: str) -> None:
    """Change the descriptions of tools; the server reads them at its next start."""
    path = folder / f"{server}.tools.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    for tool in spec["tools"]:
        tool["description"] = descriptions.get(tool["name"], tool["description"])
    path.write_text(json.dumps(spec), encoding="utf-8")

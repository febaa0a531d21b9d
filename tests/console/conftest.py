from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.console.browser import open_context, running_browser, watch_errors
from tests.gateway.serving import GatewayProcess, running_gateway, wait_until


# Package scope: the browser's event loop must be closed before the tests of other packages start theirs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway without keys that serves the demo tools."""
    with running_gateway(tmp_path_factory.mktemp("console")) as gateway:
        wait_until(lambda: gateway.servers()["demo"]["state"] == "started")
        yield gateway


@pytest.fixture
def page(browser: Browser, gateway: GatewayProcess) -> Iterator[Page]:
    """A new tab. The test fails if a script fails or violates the security policy."""
    with open_context(browser, gateway.url, permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        errors = watch_errors(page)
        yield page
        assert errors == []

"""Drive the console in a real Chromium, as a person would."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 60_000
expect.set_options(timeout=TIMEOUT_MS)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run Chromium, or skip the test if there is none."""
    if not CHROMIUM:
        pytest.skip("needs chromium (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        environment: dict[str, str | float | bool] = {
            name: value for name, value in os.environ.items() if "proxy" not in name.lower()
        }
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, env=environment)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_context(browser: Browser, url: str, **options: Any) -> Iterator[BrowserContext]:
    """Open a browser profile without cookies for one gateway."""
    context = browser.new_context(base_url=url, **options)
    context.set_default_timeout(TIMEOUT_MS)
    try:
        yield context
    finally:
        context.close()


def watch_errors(page: Page) -> list[str]:
    """Return a list that collects the page's script errors and violations of its security policy."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def on_message(message: Any) -> None:
        if message.type == "error" and "status of" not in message.text and "net::ERR_" not in message.text:
            errors.append(message.text)

    page.on("console", on_message)
    return errors

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the tests of a module, so that they can share what runs in it."""
    return "asyncio"

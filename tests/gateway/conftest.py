from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop per module, so that its tests can share fixtures."""
    return "asyncio"

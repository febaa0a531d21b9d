from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.llm.anthropic.requests import close_all


@pytest.fixture(scope="package", autouse=True)
def _close_gateways() -> Iterator[None]:
    """Close the gateways that the tests share, because starting one takes long."""
    yield
    close_all()

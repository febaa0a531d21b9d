from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.llm.anthropic.requests import close_all


@pytest.fixture(scope="package", autouse=True)
def _closing() -> Iterator[None]:
    """Gateways are shared between tests, as starting one takes longer than most tests."""
    yield
    close_all()

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from toolcrib.storage import open_store
from toolcrib.storage.store import Store

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

# No deadline: the tests must not depend on the speed of the machine.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
# The commands under test must not write to the cache folder of the user who runs the tests.
os.environ.setdefault("TOOLCRIB_CACHE", "off")
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a process."""
    # The environments for the tests of frameworks have no psycopg.
    from tests.support.postgres import PostgresServer

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of an empty database."""
    return postgres_server.create_database()


@pytest.fixture(params=["sqlite file", "sqlite memory", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, of each kind."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return "sqlite://" if request.param == "sqlite memory" else f"sqlite:///{tmp_path / 'toolcrib.db'}"


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, of each kind."""
    opened = open_store(store_url)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def reset_log_levels() -> Iterator[None]:
    """Undo what a command that ran in this process did to the levels of our loggers."""
    yield
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "toolcrib" and isinstance(logger, logging.Logger):
            logger.setLevel(logging.NOTSET)

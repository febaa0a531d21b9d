"""The gateway's persistent store; `open_store` opens it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from toolcrib.errors import InvalidConfig
from toolcrib.files.store_url import is_postgres_url, path_from_url
from toolcrib.storage.sql_database import SqlDatabase
from toolcrib.storage.sqlite.database import SqliteDatabase
from toolcrib.storage.store import Store


def open_store(url: str, journal_folder: Path | None = None) -> Store:
    """Open the store at a URL. Journals need a folder.

    `sqlite:///toolcrib.db` is a relative path, `sqlite:////var/toolcrib.db` an absolute one, and
    `sqlite://` a store in memory. `postgresql://user@host/database` needs `toolcrib[postgres]`.
    """
    if is_postgres_url(url):
        return Store(_open_postgres(url), journal_folder)
    try:
        path = path_from_url(url)
    except InvalidConfig as error:
        raise InvalidConfig(f"store: {error}") from None
    return Store(SqliteDatabase(path), journal_folder)


def _open_postgres(url: str) -> SqlDatabase:
    try:
        module = import_module("toolcrib.storage.postgres.database")
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            f"store: PostgreSQL needs a package that is not installed ({error.name}); "
            "run: pip install 'toolcrib[postgres]'"
        ) from error
    database: SqlDatabase = module.PostgresDatabase(url)
    return database

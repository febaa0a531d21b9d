"""The gateway's persistent store; `open_store` opens it."""

from __future__ import annotations

from toolcrib.errors import InvalidConfig
from toolcrib.files.sqlite_file import path_from_url
from toolcrib.storage.sqlite import SqliteStore
from toolcrib.storage.store import Store


def open_store(url: str) -> Store:
    """Open the store at a URL.

    `sqlite:///toolcrib.db` is a relative path, `sqlite:////var/toolcrib.db` an absolute one, and
    `sqlite://` a store in memory.
    """
    try:
        path = path_from_url(url)
    except InvalidConfig as error:
        raise InvalidConfig(f"store: {error}") from None
    return SqliteStore(path)

"""What a gateway remembers between starts; `open_store` is the door."""

from __future__ import annotations

from toolcrib.errors import InvalidConfig
from toolcrib.files.sqlite_file import path_from_url
from toolcrib.storage.sqlite import SqliteStore
from toolcrib.storage.store import Store


def open_store(url: str) -> Store:
    """The store at a URL: `sqlite:///toolcrib.db` is a file here, `sqlite:////var/toolcrib.db` one
    elsewhere, `sqlite://` is in memory and forgotten at the end."""
    try:
        path = path_from_url(url)
    except InvalidConfig as fault:
        raise InvalidConfig(f"store: {fault}") from None
    return SqliteStore(path)

"""What a gateway remembers between starts; `open_store` is the door."""

from __future__ import annotations

from pathlib import Path

from toolcrib.errors import InvalidConfig
from toolcrib.storage.sqlite import MEMORY, SqliteStore
from toolcrib.storage.store import Store


def open_store(url: str) -> Store:
    """The store at a URL: `sqlite:///toolcrib.db` is a file here, `sqlite:////var/toolcrib.db` one
    elsewhere, `sqlite://` is in memory and forgotten at the end."""
    scheme, separator, path = url.partition("://")
    if not separator:
        raise InvalidConfig(f"store {url!r} is not a URL; for a file write sqlite:///{url}")
    if scheme != "sqlite":
        raise InvalidConfig(f"store {url!r}: {scheme!r} is not known; write sqlite:///toolcrib.db")
    if path in ("", f"/{MEMORY}"):
        return SqliteStore(MEMORY)
    if not path.startswith("/") or path == "/":
        raise InvalidConfig(
            f"store {url!r}: a file comes after three slashes; write sqlite:///toolcrib.db"
        )
    return SqliteStore(str(Path(path[1:]).expanduser()))

"""Read the URL of a store: a SQLite file, a store in memory or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from toolcrib.errors import InvalidConfig
from toolcrib.files.sqlite_file import IN_MEMORY

_POSTGRES_SCHEMES: Final = ("postgresql", "postgres")
_EXAMPLES: Final = "use sqlite:///toolcrib.db or postgresql://user@host/database"


def is_postgres_url(url: str) -> bool:
    """Return whether a URL names a PostgreSQL database."""
    return url.partition("://")[0] in _POSTGRES_SCHEMES and "://" in url


def check_store_url(url: str) -> None:
    """Raise `InvalidConfig` unless a URL has a form that `open_store` accepts."""
    if not is_postgres_url(url):
        path_from_url(url)


def path_from_url(url: str) -> str:
    """Return the path of a `sqlite://` URL, or `IN_MEMORY`.

    Error messages do not quote the URL, which may contain a password.
    """
    scheme, separator, path = url.partition("://")
    if not separator:
        raise InvalidConfig(f"is not a URL; {_EXAMPLES}")
    if scheme != "sqlite":
        raise InvalidConfig(f"{scheme!r:.60} is not supported; {_EXAMPLES}")
    if path in ("", f"/{IN_MEMORY}"):
        return IN_MEMORY
    if not path.startswith("/") or path == "/":
        raise InvalidConfig("a path needs three slashes; use sqlite:///toolcrib.db")
    return str(Path(path[1:]).expanduser())

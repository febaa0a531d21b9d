"""Where a configuration keeps its store and its OAuth tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from toolcrib.config.settings import GatewayConfig
from toolcrib.files.store_url import is_postgres_url

_SQLITE_PREFIX: Final = "sqlite:///"
_JOURNAL_SUFFIX: Final = ".journal"
_LOGS_SUFFIX: Final = ".logs"
_TOKENS_SUFFIX: Final = ".tokens"


def resolve_store_url(config: GatewayConfig) -> str:
    """Return the URL of the store; a relative path is relative to the configuration file."""
    path = sqlite_path(config.store)
    if path is None or config.path is None or path.is_absolute():
        return config.store
    return f"{_SQLITE_PREFIX}{config.path.resolve().parent / path}"


def resolve_token_folder(config: GatewayConfig) -> Path | None:
    """Return the folder of OAuth tokens: next to the store file, or without one next to the configuration file.

    None if the configuration has neither, or if replicas share a database.
    """
    path = sqlite_path(resolve_store_url(config))
    if path is not None:
        return path.with_suffix(_TOKENS_SUFFIX)
    if is_postgres_url(config.store):
        return None
    return config.path.resolve().parent / f"toolcrib{_TOKENS_SUFFIX}" if config.path else None


def resolve_journal_folder(config: GatewayConfig) -> Path | None:
    """Return the folder of journals: the configured one, or next to the store file or the configuration file.

    None if the store is in memory, or if the configuration has no file.
    """
    if config.journal:
        folder = Path(config.journal).expanduser()
        return config.path.resolve().parent / folder if config.path else folder
    path = sqlite_path(resolve_store_url(config))
    if path is not None:
        return path.with_suffix(_JOURNAL_SUFFIX)
    if not is_postgres_url(config.store) or config.path is None:
        return None
    return config.path.resolve().parent / f"toolcrib{_JOURNAL_SUFFIX}"


def resolve_log_folder(config: GatewayConfig) -> Path | None:
    """Return the folder of the servers' standard error, next to the store file; None without a file."""
    path = sqlite_path(resolve_store_url(config))
    return path.with_suffix(_LOGS_SUFFIX) if path is not None else None


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL, or None if the URL does not name a file."""
    if not url.startswith(_SQLITE_PREFIX):
        return None
    return Path(url.removeprefix(_SQLITE_PREFIX)).expanduser()

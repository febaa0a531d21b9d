"""Where what must last is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from toolcrib.config.settings import Config

_FILE: Final = "sqlite:///"
_TOKENS: Final = ".tokens"


def store_url(config: Config) -> str:
    """Where the store of a configuration is: a file lies beside that of the configuration."""
    url = config.store
    named = url.removeprefix(_FILE)
    if url.startswith(_FILE) and config.path and not Path(named).expanduser().is_absolute():
        return f"{_FILE}{config.path.resolve().parent / named}"
    return url


def tokens_folder(config: Config) -> Path | None:
    """Where the tokens of servers are kept, beside the store; None where that is no file."""
    url = store_url(config)
    if not url.startswith(_FILE):
        # Nothing of it may be lost with the store, so it stays with the configuration.
        return config.path.resolve().parent / f"toolcrib{_TOKENS}" if config.path else None
    return Path(url.removeprefix(_FILE)).expanduser().with_suffix(_TOKENS)

"""Where what must last is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from toolcrib.config.settings import GatewayConfig

_SQLITE_PREFIX: Final = "sqlite:///"
_TOKENS_SUFFIX: Final = ".tokens"


def resolve_store_url(config: GatewayConfig) -> str:
    """Where the store of a configuration is: a file lies beside that of the configuration."""
    url = config.store
    named = url.removeprefix(_SQLITE_PREFIX)
    if (
        url.startswith(_SQLITE_PREFIX)
        and config.path
        and not Path(named).expanduser().is_absolute()
    ):
        return f"{_SQLITE_PREFIX}{config.path.resolve().parent / named}"
    return url


def resolve_token_folder(config: GatewayConfig) -> Path | None:
    """Where the tokens of servers are kept, beside the store; None where that is no file."""
    url = resolve_store_url(config)
    if not url.startswith(_SQLITE_PREFIX):
        # Nothing of it may be lost with the store, so it stays with the configuration.
        return config.path.resolve().parent / f"toolcrib{_TOKENS_SUFFIX}" if config.path else None
    return Path(url.removeprefix(_SQLITE_PREFIX)).expanduser().with_suffix(_TOKENS_SUFFIX)

"""The store that commands look into: that of the configuration, or one that is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from toolcrib.config.loader import find_config_path, load_config
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidStore
from toolcrib.hub.paths import resolve_store_url
from toolcrib.storage import open_store
from toolcrib.storage.store import Store

_FILE: Final = "sqlite:///"
store_option = click.option(
    "--store", "url", metavar="URL", help="Another store than the configuration's."
)


def find_store_url(config_file: str | None) -> str:
    """Where the gateway of the configuration keeps what it knows."""
    path = find_config_path(config_file)
    return resolve_store_url(load_config(path) if path is not None else GatewayConfig())


@contextmanager
def open_existing_store(url: str) -> Iterator[Store]:
    """The store at a URL; none is made where there is none."""
    path = Path(url.removeprefix(_FILE)).expanduser()
    if url.startswith(_FILE) and not path.exists():
        raise InvalidStore(
            f"{path}: there is no such file; start the gateway once, or name its store with --store"
        )
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()

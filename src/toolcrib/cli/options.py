"""The options several commands share, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.printing import print_note

if TYPE_CHECKING:
    # Loaded when needed: not every command that shares these options has to do with catalogs.
    from toolcrib.core.catalog import Catalog

Callback = Callable[..., None]

catalog_option = click.option(
    "--catalog",
    "catalog_files",
    multiple=True,
    metavar="FILE",
    help="JSON or JSON Lines of tools in any known format; - is standard input; may be repeated. "
    "Without it, the demo catalog.",
)
config_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="The configuration; without it, $TOOLCRIB_CONFIG, ./toolcrib.json or "
    "~/.config/toolcrib/toolcrib.json.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
offset_option = click.option(
    "--offset", default=0, type=click.IntRange(min=0), metavar="N", help="Leave out the first N."
)


def where_options(callback: Callback) -> Callback:
    """Add the options that narrow a search; the command is given them as one `where`."""

    @click.option("--server", default="", metavar="NAME", help="Only tools of this server.")
    @click.option("--category", default="", metavar="NAME", help="Only tools of this category.")
    @click.option("--tag", "tags", multiple=True, help="Only tools with this tag; may be repeated.")
    @click.option("--read-only", is_flag=True, help="Only tools that say they change nothing.")
    @wraps(callback)
    def bundled(
        server: str, category: str, tags: tuple[str, ...], read_only: bool, **others: Any
    ) -> None:
        from toolcrib.search.filters import Where

        where = Where(server=server, category=category, tags=tags, read_only=read_only)
        callback(where=where, **others)

    return bundled


def open_catalog(catalog_files: Sequence[str]) -> Catalog:
    """The catalog of the files that were named, or the demo's, which is then said."""
    if catalog_files:
        from toolcrib.files.catalog_file import read_catalog_file

        return read_catalog_file(*catalog_files)
    print_note("No --catalog given: this is the demo catalog.")
    return load_demo_catalog()


def load_demo_catalog() -> Catalog:
    """The catalog that comes with Toolcrib, to try it on."""
    from toolcrib.files.catalog_file import read_catalog_file

    # Beside the command that is named after it; asked for from here so as not to import it.
    with as_file(files("toolcrib.cli") / "demo" / "tools.jsonl") as path:
        return read_catalog_file(path)

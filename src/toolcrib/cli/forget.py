"""`toolcrib forget`: see what was learned from use, and drop it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import counted, print_json
from toolcrib.cli.store import configured, opened, store_option
from toolcrib.errors import UnknownTool
from toolcrib.safety.display import visible
from toolcrib.storage.feedback import HASHED
from toolcrib.storage.store import Store

_MAX_NAMED: Final = 12


@click.command("forget")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Forget everything that was learned.")
@config_option
@store_option
@json_option
def command(
    names: tuple[str, ...],
    everything: bool,
    config_file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """See what was learned from use, and forget it.

    Without NAMES it lists the tools, each with how many words led to it. A name is that of a tool,
    such as github___create_issue. Clients' own tools, behind the model gateway, have no names here.
    A gateway that is running takes notice by itself.
    """
    with opened(url or configured(config_file)) as store:
        known = store.lessons.tools()
        gone = _forgotten(store, known, names, everything)
    left = {name: words for name, words in known.items() if name not in gone}
    if as_json:
        print_json({"known": left, "forgotten": gone})
    elif gone:
        click.secho(f"{_tools(gone)} forgotten.", bold=True)
    elif names or everything or not left:
        click.echo("Nothing was learned.")
    else:
        _print(left)


def _forgotten(
    store: Store, known: Mapping[str, int], names: tuple[str, ...], everything: bool
) -> dict[str, int]:
    """Drop what is to be dropped; gives the tools, each with its words."""
    if everything:
        store.lessons.forget()
        return dict(known)
    for name in names:
        if name not in known:
            some = ", ".join(visible(one) for one in _named(known)[:_MAX_NAMED])
            raise UnknownTool(
                f"nothing was learned of a tool {visible(name)!r}; "
                + (f"something was of {some}" if some else "nothing was of any")
            )
    for name in names:
        store.lessons.forget(name)
    return {name: known[name] for name in names}


def _print(known: Mapping[str, int]) -> None:
    named = _named(known)
    for name in named:
        words = known[name]
        click.echo(f"{words:>6,} {'word ' if words == 1 else 'words'}  {visible(name)}")
    hashed = len(known) - len(named)
    if hashed:
        click.echo(f"and {counted(hashed, 'tool')} of the model gateway's clients")
    click.echo("Forget one with: toolcrib forget NAME; everything with: toolcrib forget --all")


def _named(known: Mapping[str, int]) -> list[str]:
    return [name for name in known if not name.startswith(HASHED)]


def _tools(known: Mapping[str, int]) -> str:
    words = counted(sum(known.values()), "word")
    return f"What {words} said of {counted(len(known), 'tool')} is"

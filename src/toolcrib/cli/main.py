"""The `toolcrib` command. Each subcommand is imported when it is called."""

from __future__ import annotations

import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from toolcrib import __version__
from toolcrib.cli.printing import print_note, sanitize
from toolcrib.errors import ToolcribError

# The module and the first line of the help text of each command. The help texts are repeated here so
# that `toolcrib --help` does not import all commands; a test compares them.
_COMMANDS = {
    "add": ("toolcrib.cli.gateway.servers.add", "Add a server to toolcrib.json."),
    "approve": ("toolcrib.cli.gateway.approve", "List changed tools and approve them."),
    "audit": ("toolcrib.cli.gateway.audit", "Print the audit log: who searched, called and changed what."),
    "call": ("toolcrib.cli.gateway.call", "Call a tool through a running gateway."),
    "config": ("toolcrib.cli.gateway.config", "Find, check and describe toolcrib.json."),
    "demo": ("toolcrib.cli.catalog.demo", "Show tool search on a small catalog."),
    "doctor": ("toolcrib.cli.gateway.doctor", "Find problems in toolcrib.json and suggest fixes."),
    "enrich": ("toolcrib.cli.catalog.enrich", "Let a model write example requests, so that tools are found by them."),
    "eval": ("toolcrib.cli.catalog.eval", "Measure how well search finds the right tools."),
    "import": (
        "toolcrib.cli.gateway.servers.import_servers",
        "Import the servers of your MCP clients into toolcrib.json.",
    ),
    "keys": ("toolcrib.cli.gateway.keys", "List, create and revoke the API keys of a running gateway."),
    "lint": ("toolcrib.cli.gateway.lint", "List the tools that a search will probably not find."),
    "login": ("toolcrib.cli.gateway.servers.login", "Log in to a server that uses OAuth."),
    "logs": ("toolcrib.cli.gateway.servers.logs", "Print what a server wrote to standard error."),
    "restart": ("toolcrib.cli.gateway.servers.restart", "Restart a server of a running gateway."),
    "search": ("toolcrib.cli.catalog.search", "Search for tools."),
    "serve": ("toolcrib.cli.gateway.serve", "Serve MCP, the LLM APIs and the console over HTTP."),
    "status": ("toolcrib.cli.gateway.status", "Show the state of a running gateway."),
    "stdio": ("toolcrib.cli.gateway.stdio", "Serve MCP on standard input and output."),
    "store": ("toolcrib.cli.gateway.store", "Copy a store from SQLite to PostgreSQL, or back."),
    "tools": ("toolcrib.cli.catalog.tools", "List the tools of a catalog or of the running gateway."),
}
_EXIT_INTERRUPTED = 130
# Commands that encode tools, whose vectors are kept in the user's cache folder.
_ENCODING_COMMANDS = frozenset({"demo", "enrich", "eval", "search", "serve", "stdio"})


class _LazyGroup(click.Group):
    """Imports commands on demand, and turns errors into messages with an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            for similar in get_close_matches(cmd_name, _COMMANDS, 1):
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {similar!r}?")
            return None
        if "OPENBLAS_NUM_THREADS" not in os.environ:
            # Must be set before numpy is imported. The matrices are small: on a busy machine, threads mostly wait for
            # each other. Starting a child process stops them, and a search that uses them would hang. It is not set in
            # `os.environ`, which the servers inherit.
            os.putenv("OPENBLAS_NUM_THREADS", "1")
        command: click.Command = import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _print_warning
                return super().invoke(ctx)
        except ToolcribError as error:
            raise click.ClickException("\n".join(map(sanitize, str(error).splitlines()))) from error
        except KeyboardInterrupt:
            raise SystemExit(_EXIT_INTERRUPTED) from None


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    print_note(f"Warning: {message}")


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def toolcrib(context: click.Context) -> None:
    """Tool search for LLM agents.

    Start with `toolcrib demo`, which needs no API key and no network.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    if context.invoked_subcommand in _ENCODING_COMMANDS:
        # Imported here, because the other commands do not need the encoder.
        from toolcrib.embedders.cache import use_vector_cache

        context.with_resource(use_vector_cache())


def main() -> None:
    """Run the command line interface."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The shell has closed it, as in `toolcrib tools >&-`.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Characters that the terminal does not support become question marks.
            stream.reconfigure(errors="replace")
    try:
        toolcrib(prog_name="toolcrib")
    except OSError as error:
        # For example, standard output is redirected to a full disk.
        sys.exit(f"Error: {sanitize(str(error))}")

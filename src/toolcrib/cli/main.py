"""The `toolcrib` command: a table of contents; each command is loaded when it is called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from toolcrib import __version__
from toolcrib.cli.printing import sanitize
from toolcrib.errors import ToolcribError

# Name to module and first line of help. The help stands here so that listing the commands does
# not import them; a test holds it equal to what each command says itself.
_COMMANDS = {
    "approve": ("toolcrib.cli.approve", "See what has changed in tools, and trust it."),
    "config": ("toolcrib.cli.config", "Find, check and describe toolcrib.json."),
    "demo": ("toolcrib.cli.demo", "See tool search at work on a small catalog."),
    "doctor": ("toolcrib.cli.doctor", "Say what is wrong with toolcrib.json, and the cure."),
    "eval": ("toolcrib.cli.eval", "Measure how well search finds the right tools."),
    "import": (
        "toolcrib.cli.import_servers",
        "Bring the servers of your MCP clients into toolcrib.json.",
    ),
    "login": ("toolcrib.cli.login", "Log in to a server on HTTP that asks for it."),
    "search": ("toolcrib.cli.search", "Find the tools that serve a need."),
    "serve": ("toolcrib.cli.serve", "Serve MCP and the model APIs over HTTP."),
    "status": ("toolcrib.cli.status", "See how a running gateway is doing."),
    "stdio": ("toolcrib.cli.stdio", "Serve MCP on standard input and output."),
    "tools": ("toolcrib.cli.tools", "List the tools of a catalog."),
}
_EXIT_INTERRUPTED = 130
# They start servers while they search.
_GATEWAY_COMMANDS = frozenset({"doctor", "serve", "stdio"})


class _LazyGroup(click.Group):
    """A group that imports a command only to run it, and gives every error its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in _GATEWAY_COMMANDS:
            # Has to be said before numpy is loaded. A process that starts another one stops the
            # threads of numpy's matrices, and a search that is using them would wait for ever.
            # They are of no use either: on small matrices their waiting costs more than they do.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        command: click.Command = import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ToolcribError as fault:
            raise click.ClickException(sanitize(str(fault))) from fault
        except BrokenPipeError:
            raise
        except OSError as fault:
            # Such as a full disk behind standard output.
            raise click.ClickException(sanitize(str(fault))) from fault
        except KeyboardInterrupt:
            raise SystemExit(_EXIT_INTERRUPTED) from None


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def toolcrib(context: click.Context) -> None:
    """Tool search for LLM agents: the few tools a task needs, out of thousands.

    New here? Run `toolcrib demo`: it needs no key and no network.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that knows few characters gets question marks, not a traceback.
            stream.reconfigure(errors="replace")
    toolcrib(prog_name="toolcrib")

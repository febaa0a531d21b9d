"""`toolcrib call`: call a tool through a running gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from toolcrib.cli.gateway.client import GatewayClient, client_options, quote_name
from toolcrib.cli.printing import json_option, print_json, sanitize_lines
from toolcrib.files.json_file import reject_constant

DEFAULT_CALL_TIMEOUT_SECONDS = 300


def _parse_arguments(context: click.Context, parameter: click.Parameter, text: str) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    try:
        arguments = json.loads(text, parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{error}. Pass a JSON object, for example '{{\"year\": 2026}}'.") from error
    if not isinstance(arguments, dict):
        raise click.BadParameter("It must be a JSON object, for example '{\"year\": 2026}'.")
    return arguments


@click.command("call")
@click.argument("tool")
@click.option(
    "--arguments",
    default="{}",
    metavar="JSON",
    callback=_parse_arguments,
    help="Arguments of the call as a JSON object, or - to read them from standard input.  [default: {}]",
)
@click.option(
    "--timeout",
    default=DEFAULT_CALL_TIMEOUT_SECONDS,
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    help=f"How long to wait for the result.  [default: {DEFAULT_CALL_TIMEOUT_SECONDS}]",
)
@client_options
@json_option
def command(tool: str, arguments: dict[str, Any], timeout: int, client: GatewayClient, as_json: bool) -> None:
    """Call a tool through a running gateway.

    TOOL is its name as the gateway shows it, such as github___create_issue. The arguments are
    validated. If the tool reports an error, the exit code is 1.
    """
    reply = client.post_json(f"/api/tools/{quote_name(tool)}/call", {"arguments": arguments}, timeout)
    result = reply.get("result")
    if not isinstance(result, dict) or not isinstance(reply.get("succeeded"), bool):
        raise client.not_a_gateway_error()
    if as_json:
        print_json(reply)
    else:
        _print_result(result)
    if not reply["succeeded"]:
        raise SystemExit(1)


def _print_result(result: Mapping[str, Any]) -> None:
    parts = result.get("content")
    for part in parts if isinstance(parts, list) else []:
        text = part.get("text") if isinstance(part, Mapping) else None
        click.echo(sanitize_lines(text) if isinstance(text, str) else json.dumps(part, ensure_ascii=False))
    if not parts and "structuredContent" in result:
        print_json(result["structuredContent"])

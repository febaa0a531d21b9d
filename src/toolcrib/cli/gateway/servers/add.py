"""`toolcrib add`: add a server to the configuration."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.gateway.servers.openapi import build_api_entry
from toolcrib.cli.printing import print_note, sanitize, wrap
from toolcrib.config.clients.file_writes import check_writable, replace_file
from toolcrib.config.clients.importing import plan_addition
from toolcrib.config.fields import collect_required_variables
from toolcrib.config.loader import find_config_path, user_config_path
from toolcrib.config.registry_format import RegistryOption, RegistryServer, read_registry_server
from toolcrib.config.server_entry import check_url
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file
from toolcrib.files.remote_file import fetch_remote_file
from toolcrib.gateway.hosts import is_loopback

MAX_REGISTRY_BYTES: Final = 1024 * 1024
_FETCH_SECONDS: Final = 15


def _split_pairs(separator: str, example: str) -> Callable[..., dict[str, str]]:
    def split(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        pairs = [value.partition(separator) for value in values]
        if not all(name.strip() and found for name, found, _ in pairs):
            raise click.BadParameter(f"Write it like this: {example}")
        return {name.strip(): value.strip() for name, _, value in pairs}

    return split


@click.command("add")
@click.argument("name", required=False, default="")
@click.argument("command_line", nargs=-1, metavar="[-- COMMAND [ARGS]...]")
@click.option("--url", default="", metavar="URL", help="Address of a remote server.")
@click.option(
    "--from",
    "source",
    default="",
    metavar="FILE|URL",
    help="A server.json of the MCP registry: a file, - for standard input, or its address.",
)
@click.option("--openapi", default="", metavar="FILE|URL", help="An OpenAPI document; its operations become tools.")
@click.option("--base-url", default="", metavar="URL", help="Address of the API of --openapi.")
@click.option(
    "--package", default="", metavar="KIND", help="Which package of a server.json: npm, pypi, oci, nuget or remote."
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_split_pairs("=", "--env NAME=VALUE"),
    help="Environment variable of the server; may be repeated. ${NAME} refers to a variable of yours.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    callback=_split_pairs(":", "--header 'Authorization: Bearer ${TOKEN}'"),
    help="HTTP header for a remote server or an API; may be repeated.",
)
@click.option(
    "--query",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_split_pairs("=", "--query 'api_key=${API_KEY}'"),
    help="Query parameter for each request to an API; may be repeated.",
)
@click.option("--basic-auth", default="", metavar="USER:PASSWORD", help="Credentials of an API.")
@click.option("--replace", is_flag=True, help="Replace a server of the same name.")
@config_option
@click.option("--dry-run", is_flag=True, help="Print the entry; write nothing.")
def command(name: str, command_line: tuple[str, ...], **options: Any) -> None:
    """Add a server to toolcrib.json.

    Give the command of the server after --, its address with --url, its server.json with --from, or
    the OpenAPI document of an API with --openapi. Comments in toolcrib.json are kept. A running gateway starts the server at once.
    """
    if sum(map(bool, (command_line, options["url"], options["source"], options["openapi"]))) != 1:
        raise click.UsageError("Give either a command after --, or --url, or --from, or --openapi.")
    api_options = ("base_url", "query", "basic_auth")
    if not options["openapi"] and any(options[option] for option in api_options):
        raise click.UsageError("--base-url, --query and --basic-auth need --openapi.")
    if options["package"] and not options["source"]:
        raise click.UsageError("--package needs --from.")
    entry: dict[str, Any]
    imported_from = ""
    if options["source"]:
        server = read_registry_server(_read_document(options["source"]), options["source"])
        entry = dict(_select_option(server, options["package"], options["source"]).entry)
        name, imported_from = name or server.name, f"MCP registry: {options['source']}"
    elif options["openapi"]:
        name, entry = build_api_entry(name, options)
    elif command_line:
        entry = {"command": command_line[0], "args": list(command_line[1:])}
    else:
        entry = {"url": options["url"]}
    if not name:
        raise click.UsageError("Give the server a name: toolcrib add NAME …")
    for key, values in (("env", options["env"]), ("headers", options["headers"]), ("query", options["query"])):
        if values:
            entry[key] = {**entry.get(key, {}), **values}
    path = (find_config_path(options["config_file"]) or user_config_path(os.environ)).absolute()
    plan = plan_addition(
        path, name, entry, os.environ, imported_from=imported_from, replace_existing=options["replace"]
    )
    if options["dry_run"]:
        check_writable(path, plan.before)
        click.echo(json.dumps({name: entry}, indent=2, ensure_ascii=False))
        return
    replace_file(path, plan.after, plan.before)
    click.echo(f"{sanitize(name)} added to {sanitize(str(path))}")
    _print_hints(entry)


def _select_option(server: RegistryServer, kind: str, source: str) -> RegistryOption:
    """Return the wanted way to run a server, or the first one whose program is installed."""
    kinds = ", ".join(dict.fromkeys(option.kind for option in server.options))
    if not server.options:
        found = f"; it has only: {', '.join(server.unsupported)}" if server.unsupported else ""
        raise InvalidConfig(f"{source}: has no package that can be started and no address{found}")
    wanted = [option for option in server.options if kind in ("", option.kind)]
    if not wanted:
        raise InvalidConfig(f"{source}: has no package {kind}; it has: {kinds}")
    installed = [option for option in wanted if not option.command or shutil.which(option.command)]
    chosen = (installed or wanted)[0]
    if not kind and len(server.options) > 1:
        others = ", ".join(dict.fromkeys(option.kind for option in server.options if option is not chosen))
        print_note(f"Uses {chosen.kind}. The server also has: {others}; choose with --package.")
    return chosen


def _print_hints(entry: dict[str, Any]) -> None:
    program = entry.get("command")
    if program and not shutil.which(program):
        print_note(wrap(f"{sanitize(program)} is not installed, or not on the PATH; install it first."))
    unset = [variable for variable in collect_required_variables(entry) if variable not in os.environ]
    if unset:
        print_note(wrap(f"Set before you start the gateway: {', '.join(unset)}"))
    print_note("Check it with: toolcrib doctor")


def _read_document(source: str) -> object:
    if "://" not in source:
        file = read_json_file(source, InvalidConfig, "a server.json")
        return next(iter(file.iter_values()))[1]
    check_url(source, ("--from",), "https://example.com/server.json")
    is_local = is_loopback(urlsplit(source).hostname or "")
    content = fetch_remote_file(source, MAX_REGISTRY_BYTES, _FETCH_SECONDS, uses_proxy=not is_local)
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidConfig(f"{source}: is not JSON; pass the address of a server.json") from None
    return document

"""`toolcrib add`: add a server to the configuration."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.printing import print_note, sanitize, wrap
from toolcrib.config.clients.file_writes import check_writable, replace_file
from toolcrib.config.clients.importing import plan_addition
from toolcrib.config.fields import collect_required_variables, escape_variables
from toolcrib.config.loader import find_config_path, user_config_path
from toolcrib.config.registry_format import RegistryOption, RegistryServer, read_registry_server
from toolcrib.config.server_entry import check_url
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file
from toolcrib.gateway.hosts import is_loopback
from toolcrib.gateway.mcp.upstream.openapi.document import (
    OpenApiDocument,
    fetch_remote_file,
    get_mapping,
    get_text,
    is_private_host,
    is_remote,
    is_same_host,
    load_document,
    read_server_url,
)
from toolcrib.gateway.mcp.upstream.openapi.operations import read_operations
from toolcrib.hub.directory import format_tool_count

MAX_REGISTRY_BYTES: Final = 1024 * 1024
_FETCH_SECONDS: Final = 15.0
_MAX_SHOWN_PROBLEMS: Final = 3
_INVALID_NAME_CHARS: Final = re.compile(r"[^a-z0-9]+")


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
    the OpenAPI document of an API with --openapi. Comments in toolcrib.json are kept. A running gateway
    starts the server within seconds.
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


def build_api_entry(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry of an API; print what it has and what it needs.

    The address of the API is written to the entry, so that a changed document can't change it.
    """
    source = options["openapi"]
    if "://" in source:
        check_url(source, ("--openapi",), "https://example.com/openapi.json")
    else:
        source = str(Path(source).expanduser().absolute())
    uses_proxy = not is_loopback(urlsplit(source).hostname or "")
    document = load_document(source, _FETCH_SECONDS, uses_proxy=uses_proxy)
    base_url = _choose_base_url(document, options["base_url"])
    found = read_operations(document, base_url)
    if not found.operations:
        raise InvalidConfig(f"{source}: has no operation that can be used; {(*found.problems, 'it has no paths')[0]}")
    count = format_tool_count(len(found.operations))
    print_note(wrap(f"{count}; calls go to {sanitize(base_url)}"))
    if found.problems:
        shown = "; ".join(map(sanitize, found.problems[:_MAX_SHOWN_PROBLEMS]))
        print_note(wrap(f"{len(found.problems):,} left out: {shown}"))
    if not (options["headers"] or options["query"] or options["basic_auth"]):
        for hint in dict.fromkeys(_list_credential_hints(document)):
            print_note(wrap(hint))
    name = name or _INVALID_NAME_CHARS.sub("-", document.title.lower()).strip("-")[:40]
    entry = {
        "openapi": escape_variables(source),
        "baseUrl": base_url if options["base_url"] else escape_variables(base_url),
    }
    if options["basic_auth"]:
        entry["basicAuth"] = options["basic_auth"]
    return name, entry


def _choose_base_url(document: OpenApiDocument, given: str) -> str:
    if given:
        check_url(given, ("--base-url",), "https://api.example.com/v1")
        return given
    url = read_server_url(document)
    if is_remote(document.source) and is_private_host(url) and not is_same_host(url, document.source):
        raise InvalidConfig(
            f"{document.source}: the API would be {url}, an address of a private network; "
            "pass it with --base-url if you trust it"
        )
    return url.rstrip("/")


def _list_credential_hints(document: OpenApiDocument) -> Iterator[str]:
    """Yield how to pass the credentials that a document declares."""
    schemes = get_mapping(get_mapping(document.root, "components"), "securitySchemes")
    for scheme in schemes.values():
        if not isinstance(scheme, Mapping):
            continue
        kind, header = get_text(scheme, "type"), get_text(scheme, "name")
        if kind == "apiKey" and get_text(scheme, "in") == "query":
            yield f"If the API needs a key: --query '{sanitize(header)}=${{API_KEY}}'"
        elif kind == "apiKey" and get_text(scheme, "in") == "header":
            yield f"If the API needs a key: --header '{sanitize(header)}: ${{API_KEY}}'"
        elif kind == "http" and get_text(scheme, "scheme").lower() == "basic":
            yield "If the API needs a password: --basic-auth '${API_USER}:${API_PASSWORD}'"
        elif kind in ("http", "oauth2", "openIdConnect"):
            yield "If the API needs a token: --header 'Authorization: Bearer ${API_TOKEN}'"

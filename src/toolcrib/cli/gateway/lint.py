"""`toolcrib lint`: list tools whose texts a search does not find."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.gateway.servers.login import suggest_server
from toolcrib.cli.printing import format_count, json_option, print_json, sanitize, wrap
from toolcrib.config.loader import load_config, require_config_path
from toolcrib.config.store_paths import resolve_store_url, sqlite_path
from toolcrib.core.schema import list_parameters
from toolcrib.core.token_count import count_tool_tokens
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig, InvalidStore
from toolcrib.hub.startup import open_hub
from toolcrib.search.dense.tool_text import MAX_DESCRIPTION_WORDS
from toolcrib.search.engine import SearchEngine

MIN_DESCRIPTION_WORDS: Final = 4
MAX_TOOL_TOKENS: Final = 2_000
MAX_DESCRIPTION_LINT_WORDS: Final = 300
_SHOWN_HITS: Final = 3
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|\n")
_WORD: Final = re.compile(r"[^\W_]+")

LintProblem = Literal[
    "no description", "short description", "long description", "large definition", "twin", "not found"
]


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A problem of a tool's texts; `query` and `hits` are a search with its own words and what it found."""

    tool: str
    server: str
    problem: LintProblem
    message: str
    query: str = ""
    hits: tuple[str, ...] = ()


def lint_tools(engine: SearchEngine, tools: Iterable[Tool]) -> list[LintFinding]:
    """Return the problems of the tools' texts, in the order of the tools."""
    tools = list(tools)
    twins = _find_twins(tools)
    findings: list[LintFinding] = []
    for tool in tools:
        findings += _lint_texts(tool)
        query = _own_query(tool)
        hits = tuple(hit.tool.id for hit in engine.search(query, limit=_SHOWN_HITS)) if query else ()
        if others := twins.get(tool.id):
            names = ", ".join(others[:_SHOWN_HITS])
            message = f"its description is the same as that of {names}; say in which case to use which"
            findings.append(LintFinding(tool.id, tool.server, "twin", message, query, hits))
        elif query and tool.id not in hits[:1]:
            first = hits[0] if hits else "nothing"
            place = "is not among the first three" if tool.id not in hits else "comes later"
            message = f"a search with its own words finds {first} first; the tool {place}"
            findings.append(LintFinding(tool.id, tool.server, "not found", message, query, hits))
    return findings


def _lint_texts(tool: Tool) -> list[LintFinding]:
    def finding(problem: LintProblem, message: str) -> LintFinding:
        return LintFinding(tool.id, tool.server, problem, message)

    findings: list[LintFinding] = []
    words = len(_WORD.findall(tool.description))
    if not words:
        texts = [parameter.description for parameter in list_parameters(tool.input_schema) if parameter.description]
        rest = f"and the texts of its parameters ({len(texts)})" if texts else "only"
        findings.append(finding("no description", f"it is found by the words of its name {rest}"))
    elif words < MIN_DESCRIPTION_WORDS:
        count = "1 word" if words == 1 else f"{words} words"
        findings.append(finding("short description", f"its description has {count}; say what it does and to what"))
    elif words > MAX_DESCRIPTION_LINT_WORDS:
        message = (
            f"its description has {words:,} words; only the first {MAX_DESCRIPTION_WORDS} count for its meaning, "
            "the others are found by keywords"
        )
        findings.append(finding("long description", message))
    if (tokens := count_tool_tokens(tool)) > MAX_TOOL_TOKENS:
        findings.append(
            finding("large definition", f"its definition takes {tokens:,} tokens; hide parameters that nobody needs")
        )
    return findings


def _own_query(tool: Tool) -> str:
    """Return the first sentence of the description, or the title, or the words of the name."""
    sentence = _SENTENCE_END.split(tool.description.strip(), maxsplit=1)[0]
    return " ".join((sentence or tool.title or " ".join(_WORD.findall(tool.name))).split()[:MAX_DESCRIPTION_WORDS])


def _find_twins(tools: Iterable[Tool]) -> Mapping[str, list[str]]:
    """Return the ids of tools with the same description, by id."""
    groups: dict[str, list[str]] = {}
    for tool in tools:
        key = " ".join(_WORD.findall(tool.description.casefold()))
        if key:
            groups.setdefault(key, []).append(tool.id)
    return {id: [other for other in ids if other != id] for ids in groups.values() if len(ids) > 1 for id in ids}


@click.command("lint")
@click.argument("servers", nargs=-1)
@config_option
@json_option
def command(servers: tuple[str, ...], config_file: str | None, as_json: bool) -> None:
    """List the tools that a search will probably not find.

    The tools are those that the servers listed when the gateway last ran, with your overrides. SERVERS restricts
    the list to some servers. Correct their texts with "overrides" in toolcrib.json.
    """
    config = load_config(require_config_path(config_file))
    for name in servers:
        if name not in config.servers:
            raise InvalidConfig(f"there is no server {name!r:.200} in {config.path}; {suggest_server(config, name)}")
    path = sqlite_path(resolve_store_url(config))
    if path is not None and not path.is_file():
        raise InvalidStore(
            f"{path}: there is no such file; start the gateway once, so that the servers list their tools"
        )
    hub = open_hub(config)
    try:
        tools = [entry.tool for entry in hub.directory if not servers or entry.server in servers]
        hub.engine.warm_up()
        findings = lint_tools(hub.engine, tools)
        problems = {
            one.server.name: [*one.problems, *one.override_problems]
            for one in hub.directory.servers
            if one.problems or one.override_problems
        }
    finally:
        hub.close()
    if as_json:
        print_json({"tools": len(tools), "findings": list(map(asdict, findings)), "problems": problems})
        return
    for finding in findings:
        _print_finding(finding)
    for server, messages in problems.items():
        for message in messages:
            click.echo(wrap(sanitize(f"{server}: {message}")))
    affected = len({finding.tool for finding in findings})
    click.secho(f"{format_count(affected, 'tool')} of {len(tools):,} may not be found.", bold=True)


def _print_finding(finding: LintFinding) -> None:
    click.echo(f"{click.style(sanitize(finding.tool), fg='cyan', bold=True)}  {finding.problem}")
    click.echo(wrap(sanitize(finding.message), "  "))
    if finding.query:
        click.echo(wrap(sanitize(f"search: {finding.query}"), "  "))
        click.echo(wrap(sanitize(f"finds: {', '.join(finding.hits) or 'nothing'}"), "  "))

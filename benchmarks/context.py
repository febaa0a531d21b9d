"""Measure the tokens of a conversation of 20 turns for several ways of showing tools.

python -m benchmarks.context [--data DIR] [--out FILE]

A scripted model gets 20 queries of the catalog's eval set, twelve of them different, in a fixed order. It calls a
right tool if it has the definition. Otherwise it searches once with the words of the query, and gives up if that does
not find the tool. Each way of showing tools uses its own search.
"""

import json
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import click

from benchmarks.machine import describe_machine
from toolcrib import Tool, Toolcrib
from toolcrib.core.token_count import estimate_tokens
from toolcrib.core.tool_names import public_name
from toolcrib.profiles import everruns, shipit
from toolcrib.profiles.shipit_discovery import DiscoveryPolicy
from toolcrib.session.disclosure import Disclosure

SIZES = (19, 58, 500, 5_744)
TURNS = 20
DIFFERENT = 12
BUDGET_TOKENS = 6_000
RESULT = "The tool answered with some lines of text about what was entries for. " * 4
ANSWER = "Here is what I found out, in a sentence or two, for the person who entries."

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ContextQuery:
    """A query and the ids of the right tools."""

    text: str
    relevant: frozenset[str]


class Scheme(Protocol):
    """A way of showing tools."""

    def tools(self) -> Sequence[object]:
        """Return the tools of the next request."""

    def find_callable(self, ids: frozenset[str]) -> str | None:
        """Return one of these tools whose definition the model has, or None."""

    def search(self, query: str) -> list[Message]:
        """Return the messages of a search by the model."""

    def call(self, name: str) -> list[Message]:
        """Return the messages of a call of a tool."""


def _exchange(name: str, arguments: object, result: str) -> list[Message]:
    return [{"role": "assistant", "call": name, "arguments": arguments}, {"role": "tool", "content": result}]


class UpFront:
    """Sends every definition with every request."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._entries = [_entry(tool) for tool in tools]

    def tools(self) -> Sequence[object]:
        return self._entries

    def find_callable(self, ids: frozenset[str]) -> str | None:
        return min(ids)

    def search(self, query: str) -> list[Message]:
        raise AssertionError("nothing to search for")

    def call(self, name: str) -> list[Message]:
        return _exchange(name, {}, RESULT)


class EverrunsScheme(UpFront):
    """everruns: names and descriptions of all tools, parameters of the tools that were found."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        # everruns has no servers, so the names must differ between servers.
        self._tools = [tool.replace(name=public_name(tool), id=tool.id) for tool in tools]
        self._ids = {tool.name: tool.id for tool in self._tools}
        self._search = everruns.EverrunsToolSearch()

    def tools(self) -> Sequence[object]:
        listed = [everruns.SEARCH_TOOL, *self._tools]
        return [one.render() for one in self._search.advertise(listed, "session")]

    def find_callable(self, ids: frozenset[str]) -> str | None:
        names = self._search.reveals.get_names("session")
        return _first(ids, (self._ids[name] for name in names))

    def search(self, query: str) -> list[Message]:
        context = everruns.EverrunsContext(self._tools, set(self._ids), "session")
        found = self._search.search({"query": query}, context)
        return _exchange("tool_search", {"query": query}, json.dumps(found, ensure_ascii=False))


@dataclass
class _Run:
    state: dict[str, Any] = field(default_factory=dict)


class ShipitScheme(UpFront):
    """shipit 2.2: at first ten tools within 4,096 tokens, then also the tools that were found."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._search = shipit.LoadingToolSearchTool()
        named = [tool.replace(name=public_name(tool), id=tool.id) for tool in tools]
        self._ids = {tool.name: tool.id for tool in named}
        schemas = {tool.name: _entry(tool) for tool in named}
        self._schemas = {self._search.name: self._search.schema(), **schemas}
        deferred = DiscoveryPolicy().select_deferred(named, self._search.name)
        available = [{"name": tool.name, "description": tool.description} for tool in named]
        self._run = _Run(
            {
                shipit.AVAILABLE_TOOLS_KEY: available,
                shipit.DEFERRED_NAMES_KEY: sorted(deferred),
                shipit.LOADED_NAMES_KEY: [],
                shipit.SCHEMAS_KEY: schemas,
            }
        )

    def tools(self) -> Sequence[object]:
        state = self._run.state
        loaded = state[shipit.LOADED_NAMES_KEY]
        return shipit.advertised_schemas(self._schemas, state[shipit.DEFERRED_NAMES_KEY], loaded)

    def find_callable(self, ids: frozenset[str]) -> str | None:
        state = self._run.state
        hidden = set(state[shipit.DEFERRED_NAMES_KEY]) - set(state[shipit.LOADED_NAMES_KEY])
        return _first(ids, (id for name, id in self._ids.items() if name not in hidden))

    def search(self, query: str) -> list[Message]:
        output = self._search.run(self._run, query=query)
        return _exchange(self._search.name, {"query": query}, output.text)


class ToolcribScheme(UpFront):
    """Toolcrib in one of its styles, through the calls of an agent loop."""

    def __init__(self, tools: Sequence[Tool], style: Any) -> None:
        self._crib = Toolcrib(tools, disclosure=Disclosure())
        self._session = self._crib.session(style=style, budget=BUDGET_TOKENS)
        self._style = style
        self._ids = {public_name(tool): tool.id for tool in tools}
        self._found: dict[str, None] = {}

    def tools(self) -> Sequence[object]:
        return self._session.tools("openai_chat")

    def find_callable(self, ids: frozenset[str]) -> str | None:
        return _first(ids, [*(one.id for one in self._session.state.revealed), *self._found])

    def search(self, query: str) -> list[Message]:
        said, result = self._session.handle("openai_chat", _reply("search_tools", {"query": query}))
        # What is only near is named, and a name is enough to call it.
        answer = json.loads(result["content"])
        named = [*answer["found"], *answer.get("nearest", ())]
        if self._style == "reveal":
            # Only a full definition in the history is good for later turns.
            self._found.clear()
        self._found.update(dict.fromkeys(self._ids[one["name"]] for one in named))
        return [said, result]

    def call(self, name: str) -> list[Message]:
        arguments: dict[str, Any] = {}
        name = public_name(self._crib.catalog[name])
        if "execute_dynamic_tool" in json.dumps(self.tools()[:2]):
            name, arguments = "execute_dynamic_tool", {"tool_name": name, "tool_input": {}}
        shown = {public_name(tool) for tool in self._session.state.visible_tools(self._crib.catalog)}
        # The scripted model has no arguments to give, so nothing runs; the use is noted all the same.
        messages = self._session.handle("openai_chat", _reply(name, arguments))
        guessed = self._style == "reveal" and name not in shown
        return [*(messages if guessed else ()), *_exchange(name, arguments, RESULT)]


def _first(wanted: frozenset[str], ids: Iterable[str]) -> str | None:
    return next((id for id in ids if id in wanted), None)


def _reply(name: str, arguments: object) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call", "type": "function", "function": function}
    return {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}


def _entry(tool: Tool) -> dict[str, Any]:
    function = {"name": public_name(tool), "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


@dataclass(slots=True)
class Cost:
    """The tokens that were sent. `fresh` tokens are not in the prefix of the request before."""

    first: int = 0
    total: int = 0
    fresh: int = 0
    requests: int = 0
    solved: int = 0


class Meter:
    """Counts the tokens of requests."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: dict[str, int] = {}
        self._before: list[str] = []
        self.cost = Cost()

    def request(self, tools: Sequence[object], messages: Sequence[Message]) -> None:
        """Count one request. Tools come first, as with every provider."""
        parts = [json.dumps(part, ensure_ascii=False) for part in (*tools, *messages)]
        sizes = [self._tokens(part) for part in parts]
        kept = 0
        for before, part in zip(self._before, parts, strict=False):
            if before != part:
                break
            kept += 1
        cost = self.cost
        cost.first = cost.first or sum(sizes)
        cost.total += sum(sizes)
        cost.fresh += sum(sizes[kept:])
        cost.requests += 1
        self._before = parts

    def _tokens(self, part: str) -> int:
        if part not in self._known:
            self._known[part] = self._count(part)
        return self._known[part]


def run_conversation(scheme: Scheme, questions: Sequence[ContextQuery], meter: Meter) -> Cost:
    """Run a conversation and return its cost."""
    messages: list[Message] = []
    for question in questions:
        messages.append({"role": "user", "content": question.text})
        meter.request(scheme.tools(), messages)
        if not scheme.find_callable(question.relevant):
            messages += scheme.search(question.text)
            meter.request(scheme.tools(), messages)
        if name := scheme.find_callable(question.relevant):
            meter.cost.solved += 1
            messages += scheme.call(name)
            meter.request(scheme.tools(), messages)
        messages.append({"role": "assistant", "content": ANSWER})
    return meter.cost


SCHEMES: dict[str, Callable[[Sequence[Tool]], Scheme]] = {
    "everything up front": UpFront,
    "everruns' scheme": EverrunsScheme,
    "shipit 2.2's scheme": ShipitScheme,
    "ours, reveal": lambda tools: ToolcribScheme(tools, "reveal"),
    "ours, dispatch": lambda tools: ToolcribScheme(tools, "dispatch"),
}


def read_queries(folder: Path) -> list[ContextQuery]:
    """Return twenty queries, twelve of them different."""
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    usable = [ContextQuery(one["query"], frozenset(one["relevant"])) for one in entries if one["relevant"]]
    rng = random.Random("context")
    different = rng.sample(usable, DIFFERENT)
    repeats = rng.choices(different[: DIFFERENT // 2], k=TURNS - DIFFERENT)
    return different[: DIFFERENT // 2] + [
        question
        for pair in zip(repeats, [*different[DIFFERENT // 2 :], None, None], strict=True)
        for question in pair
        if question
    ]


def sample_catalog(folder: Path, size: int, questions: Sequence[ContextQuery]) -> list[Tool]:
    """Return a sample of the tools in the order of the catalog, with a right one for each query."""
    lines = (folder / "tools.jsonl").read_text(encoding="utf-8").splitlines()
    tools = [
        Tool(
            row["name"],
            row.get("description") or "",
            row.get("input_schema") or {},
            server=row.get("server") or "",
            id=row["id"],
        )
        for row in map(json.loads, lines)
    ]
    needed = {min(question.relevant) for question in questions}
    others = [tool.id for tool in tools if tool.id not in needed]
    chosen = needed | set(random.Random(size).sample(others, min(size, len(tools)) - len(needed)))
    return [tool for tool in tools if tool.id in chosen]


def find_token_counter() -> tuple[str, Callable[[str], int]]:
    """Return an exact token counter if one is installed, otherwise the estimate of Toolcrib."""
    try:
        from rs_bpe.bpe import openai
    except ImportError:
        return "our estimate", estimate_tokens
    return "o200k, exact", openai.o200k_base().count


def table(data: Path) -> str:
    """Return the results as Markdown."""
    folder = data / "mcp_catalog"
    questions = read_queries(folder)
    title, count = find_token_counter()
    lines = [
        "# Tokens sent in a conversation of 20 turns",
        "",
        f"`python -m benchmarks.context`. Tokens: {title}. Budget of Toolcrib: {BUDGET_TOKENS:,} tokens of "
        "revealed tools. *Fresh* tokens are not in the prefix of the request before, so a prompt cache does not have "
        "them. *Solved* counts the queries for which the model had the definition of a right tool.",
    ]
    for size in SIZES:
        tools = sample_catalog(folder, size, questions)
        lines += [
            "",
            f"## {len(tools):,} tools",
            "",
            "| | first request | all requests | of up front | fresh | requests | solved |",
            "|---|--:|--:|--:|--:|--:|--:|",
        ]
        everything = 0
        for name, scheme in SCHEMES.items():
            cost = run_conversation(scheme(tools), questions, Meter(count))
            everything = everything or cost.total
            share = 100 * cost.total / everything
            lines.append(
                f"| {name} | {cost.first:,} | {cost.total:,} | {share:.2f} % | {cost.fresh:,} "
                f"| {cost.requests} | {cost.solved} of {TURNS} |"
            )
    machine = ", ".join(describe_machine().values())
    return "\n".join([*lines, "", f"{machine}.", ""])


def data_folder(named: Path | None) -> Path:
    """Return the folder of the data sets; fail if it has no catalog of real servers."""
    folder = named or Path(os.environ.get("TOOLCRIB_DATA") or "../shared/data")
    if not (folder / "mcp_catalog" / "tools.jsonl").is_file():
        raise click.ClickException(f"no mcp_catalog in {folder}; name its folder with --data")
    return folder


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder that holds mcp_catalog.")
@click.option("--out", type=click.Path(path_type=Path), default="benchmarks/results/context.md")
def main(data: Path | None, out: Path) -> None:
    """Measure the tokens of each way of showing tools."""
    text = table(data_folder(data))
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()

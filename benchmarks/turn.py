"""What tool search adds to one turn: the tools of a request, and the answer to one search.

python -m benchmarks.turn [--data DIR] [--out FILE]

All in one process, by turns, in CPU time, on the catalog of real MCP servers and its own questions.
Each peer does what its framework does in a turn, minus what would only slow it down: Pydantic AI lists
its toolset and answers a call of `search_tools`; langgraph-bigtool asks its store, with an embedding
that costs nothing (a real one takes milliseconds), and converts the tools it found.
"""

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.context import data_folder
from benchmarks.machine import described
from toolcrib import Tool, Toolcrib

QUERIES = 40
ROUNDS = 2
LIMIT = 5
EMBEDDED = 64

Turn = Callable[[str], object]


def ours(rows: Sequence[dict[str, Any]], style: Any) -> Turn:
    """Ours, each turn a conversation of its own."""
    crib = Toolcrib(
        [
            Tool(
                row["name"],
                row.get("description") or "",
                row.get("input_schema") or {},
                server=row.get("server") or "",
                id=row["id"],
            )
            for row in rows
        ]
    )

    def turn(query: str) -> object:
        session = crib.session(style=style)
        session.tools("openai_chat")
        function = {"name": "search_tools", "arguments": json.dumps({"query": query})}
        calls = [{"id": "1", "type": "function", "function": function}]
        reply = {"choices": [{"message": {"role": "assistant", "tool_calls": calls}}]}
        session.handle("openai_chat", reply)
        return session.tools("openai_chat")

    return turn


def pydantic_ai(rows: Sequence[dict[str, Any]]) -> Turn:
    """Pydantic AI's own tool search."""
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import ToolSearch
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import ExternalToolset
    from pydantic_ai.usage import RunUsage

    definitions = [
        ToolDefinition(
            name=row["id"],
            description=row.get("description") or "",
            parameters_json_schema=row.get("input_schema") or {},
            defer_loading=True,
        )
        for row in rows
    ]
    context = RunContext[None](deps=None, model=TestModel(), usage=RunUsage())
    toolset = ToolSearch[None](max_results=LIMIT).get_wrapper_toolset(
        ExternalToolset[None](definitions)
    )

    async def searched(query: str) -> object:
        tools = await toolset.get_tools(context)
        search = tools["search_tools"]
        try:
            return await toolset.call_tool("search_tools", {"queries": [query]}, context, search)
        except ModelRetry:
            return None

    runner = asyncio.Runner()
    return lambda query: runner.run(searched(query))


def langgraph_bigtool(rows: Sequence[dict[str, Any]]) -> Turn:
    """langgraph-bigtool's retrieval from a store in memory, and the tools it found as it binds them."""
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.store.memory import InMemoryStore
    from langgraph_bigtool.tools import get_default_retrieval_tool

    def embed(texts: Sequence[str]) -> list[list[float]]:
        digests = [hashlib.shake_128(text.encode()).digest(EMBEDDED) for text in texts]
        return [[byte - 127.5 for byte in digest] for digest in digests]

    store = InMemoryStore(index={"embed": embed, "dims": EMBEDDED, "fields": ["description"]})
    entries = {}
    for row in rows:
        about = row.get("description") or row["name"]
        store.put(("tools",), row["id"], {"description": f"{row['name']}: {about}"})
        function = {
            "name": row["name"],
            "description": about,
            "parameters": row.get("input_schema") or {},
        }
        entries[row["id"]] = {"type": "function", "function": function}
    retrieve, _ = get_default_retrieval_tool(("tools",), limit=LIMIT)
    return lambda query: [
        convert_to_openai_tool(entries[id]) for id in retrieve(query, store=store)
    ]


CONTENDERS: dict[str, Callable[[Sequence[dict[str, Any]]], Turn]] = {
    "ours, reveal": lambda rows: ours(rows, "reveal"),
    "ours, dispatch": lambda rows: ours(rows, "dispatch"),
    "Pydantic AI": pydantic_ai,
    "langgraph-bigtool": langgraph_bigtool,
}


def measured(turn: Turn, queries: Sequence[str]) -> list[float]:
    """CPU milliseconds of each turn."""
    times = []
    for query in queries:
        started = time.process_time()
        turn(query)
        times.append(1_000 * (time.process_time() - started))
    return times


def table(data: Path) -> str:
    """The results as Markdown."""
    folder = data / "mcp_catalog"
    rows = [json.loads(line) for line in (folder / "tools.jsonl").open(encoding="utf-8")]
    asked = [
        json.loads(line)["query"] for line in (folder / "queries.jsonl").open(encoding="utf-8")
    ]
    turns: dict[str, Turn] = {}
    absent = []
    for name, build in CONTENDERS.items():
        try:
            turns[name] = build(rows)
            turns[name]("first")
        except ImportError as fault:
            absent.append(f"{name} is not installed ({fault.name}).")
    best: dict[str, list[list[float]]] = {name: [] for name in turns}
    for number in range(ROUNDS):
        queries = random.Random(number).sample(asked, min(QUERIES, len(asked)))
        for name, turn in turns.items():
            best[name].append(measured(turn, queries))
    typical = {name: min(map(median, rounds)) for name, rounds in best.items()}
    lines = [
        f"# One turn over {len(rows):,} tools",
        "",
        f"`python -m benchmarks.turn`. CPU milliseconds for the tools of a request and the answer to "
        f"one search; the median of {QUERIES} turns, the best of {ROUNDS} rounds.",
        "",
        "| | median | slowest tenth | ours (reveal) is faster by |",
        "|---|--:|--:|--:|",
    ]
    for name, rounds in best.items():
        slow = min(sorted(times)[len(times) * 9 // 10] for times in rounds)
        factor = typical[name] / typical["ours, reveal"]
        lines.append(f"| {name} | {typical[name]:.2f} | {slow:.2f} | {factor:.1f} × |")
    machine = ", ".join(described().values())
    return "\n".join([*lines, "", *absent, f"{machine}.", ""])


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder that holds mcp_catalog.")
@click.option("--out", type=click.Path(path_type=Path), default="benchmarks/results/turn.md")
def main(data: Path | None, out: Path) -> None:
    """Measure what tool search adds to a turn."""
    text = table(data_folder(data))
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()

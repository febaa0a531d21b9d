"""Measure the time that tool search adds to a turn: the tools of a request and one search.

python -m benchmarks.turn [--data DIR] [--out FILE]

All contenders run alternately in one process and one thread, on the catalog of real MCP servers and its queries.
Times are CPU times. Toolcrib runs in three modes: `lexical`, `fast` and `hybrid`, the default; the time to encode the
query is shown separately. A peer does what its framework does in a turn: Pydantic AI lists its toolset and answers a
call of `search_tools`; langgraph-bigtool searches its store and converts the tools it found. langgraph-bigtool has no
encoder, so it is measured with one that costs nothing and with ours.
"""

import asyncio
import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

# CPU time is the sum over all threads, including waiting ones.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import click

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib import Catalog, SearchEngine, Tool, Toolcrib
from toolcrib.encoder.default import DEFAULT_ENCODER, DefaultEncoder
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import RANKERS
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker

QUERIES = 20
ROUNDS = 2
LIMIT = 5
FREE_WIDTH = 64
WARM_UP_CHUNK = 100

Turn = Callable[[str], object]


class TimedEncoder:
    """The shipped encoder, which measures the time to encode queries."""

    def __init__(self, model: DefaultEncoder = DEFAULT_ENCODER) -> None:
        self._model = model
        self.seconds = 0.0

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        started = time.process_time()
        vectors = self._model.embed_queries(texts)
        self.seconds += time.process_time() - started
        return vectors

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return self._model.embed_tools(texts)

    def embed_provisional(self, texts: Sequence[str]) -> Vectors:
        return self._model.embed_provisional(texts)


@dataclass
class Times:
    """The CPU milliseconds of turns, and of the encoder in each turn."""

    turns: list[float] = field(default_factory=list)
    encoding: list[float] = field(default_factory=list)

    @property
    def rest(self) -> list[float]:
        """The CPU milliseconds of the turns without the encoder."""
        return [one - part for one, part in zip(self.turns, self.encoding, strict=True)]


def build_toolcrib(rows: Sequence[dict[str, Any]], mode: str, clock: TimedEncoder) -> Toolcrib:
    """Return a Toolcrib that searches in one mode."""
    hybrid = HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(clock))
    ranker = hybrid if mode == "hybrid" else RANKERS[mode]

    def engine(catalog: Catalog) -> SearchEngine:
        return SearchEngine(catalog, {mode: ranker})

    tools = (
        Tool(
            row["name"],
            row.get("description") or "",
            row.get("input_schema") or {},
            server=row.get("server") or "",
            id=row["id"],
        )
        for row in rows
    )
    return Toolcrib(tools, engine=engine)


def ours(toolcrib: Toolcrib, style: Any = "reveal") -> Turn:
    """Return a function that runs a turn of Toolcrib in a new session."""

    def turn(query: str) -> object:
        session = toolcrib.session(style=style)
        session.tools("openai_chat")
        function = {"name": "search_tools", "arguments": json.dumps({"query": query})}
        calls = [{"id": "1", "type": "function", "function": function}]
        reply = {"choices": [{"message": {"role": "assistant", "tool_calls": calls}}]}
        session.handle("openai_chat", reply)
        return session.tools("openai_chat")

    return turn


def pydantic_ai(rows: Sequence[dict[str, Any]]) -> Turn:
    """Return a function that runs a turn with the tool search of Pydantic AI."""
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
    toolset = ToolSearch[None](max_results=LIMIT).get_wrapper_toolset(ExternalToolset[None](definitions))

    async def search_once(query: str) -> object:
        tools = await toolset.get_tools(context)
        search = tools["search_tools"]
        try:
            return await toolset.call_tool("search_tools", {"queries": [query]}, context, search)
        except ModelRetry:
            return None

    runner = asyncio.Runner()
    return lambda query: runner.run(search_once(query))


def langgraph_bigtool(rows: Sequence[dict[str, Any]], width: int, read: Callable[[str], Sequence[float]]) -> Turn:
    """Return a function that searches the store of langgraph-bigtool and converts the tools it found.

    The vectors of the tools are made up, because they do not influence the time of a turn.
    """
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.store.memory import InMemoryStore
    from langgraph_bigtool.tools import get_default_retrieval_tool

    reads = False

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [list(read(text)) if reads else make_vector(text, width) for text in texts]

    store = InMemoryStore(index={"embed": embed, "dims": width, "fields": ["description"]})
    entries = {}
    for row in rows:
        about = row.get("description") or row["name"]
        store.put(("tools",), row["id"], {"description": f"{row['name']}: {about}"})
        function = {"name": row["name"], "description": about, "parameters": row.get("input_schema") or {}}
        entries[row["id"]] = {"type": "function", "function": function}
    retrieve, _ = get_default_retrieval_tool(("tools",), limit=LIMIT)
    reads = True
    return lambda query: [convert_to_openai_tool(entries[id]) for id in retrieve(query, store=store)]


def make_vector(text: str, width: int) -> list[float]:
    """Return a cheap vector that depends only on the text."""
    return [byte - 127.5 for byte in hashlib.shake_128(text.encode()).digest(width)]


def measure_turns(turn: Turn, queries: Sequence[str], clock: TimedEncoder) -> Times:
    """Return the times of each turn."""
    times = Times()
    for query in queries:
        clock.seconds = 0.0
        started = time.process_time()
        turn(query)
        times.turns.append(1_000 * (time.process_time() - started))
        times.encoding.append(1_000 * clock.seconds)
    return times


def warm_up(toolcrib: Toolcrib) -> None:
    """Encode all tools in advance."""
    with click.progressbar(length=len(toolcrib.catalog), label="encoding the tools") as bar:
        left = len(toolcrib.catalog)
        while left:
            after = toolcrib.engine.warm_up(max_tools=WARM_UP_CHUNK)
            bar.update(left - after)
            left = after


def contenders(rows: Sequence[dict[str, Any]], clock: TimedEncoder) -> tuple[dict[str, Callable[[], Turn]], Toolcrib]:
    """Return the functions that build each contender, and the Toolcrib of the default mode."""
    toolcrib = build_toolcrib(rows, "hybrid", clock)
    ready: dict[str, Callable[[], Turn]] = {
        "ours, lexical": lambda: ours(build_toolcrib(rows, "lexical", clock)),
        "ours, fast": lambda: ours(build_toolcrib(rows, "fast", clock)),
        "ours, hybrid": lambda: ours(toolcrib),
        "ours, hybrid, dispatch": lambda: ours(toolcrib, "dispatch"),
        "Pydantic AI": lambda: pydantic_ai(rows),
        "langgraph-bigtool": lambda: langgraph_bigtool(rows, FREE_WIDTH, lambda text: make_vector(text, FREE_WIDTH)),
        "langgraph-bigtool, our encoder": lambda: langgraph_bigtool(
            rows, len(clock.embed_queries([""])[0]), lambda text: clock.embed_queries([text])[0].tolist()
        ),
    }
    return ready, toolcrib


def table(data: Path) -> str:
    """Return the results as Markdown."""
    folder = data / "mcp_catalog"
    rows = [json.loads(line) for line in (folder / "tools.jsonl").open(encoding="utf-8")]
    asked = [json.loads(line)["query"] for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    # No question twice but where that is what is measured: an encoder remembers.
    asked = random.Random("turn").sample(asked, min(len(asked), QUERIES * (ROUNDS * 4 + 1)))
    batches = [asked[at : at + QUERIES] for at in range(0, len(asked), QUERIES)]
    clock = TimedEncoder()
    ready, toolcrib = contenders(rows, clock)
    turns: dict[str, Turn] = {}
    absent = []
    for name, build in ready.items():
        try:
            turns[name] = build()
            turns[name]("first")
        except ImportError as fault:
            absent.append(f"{name} is not installed ({fault.name}).")
    unread = "ours, hybrid, tools not read yet"
    best = {unread: [measure_turns(turns["ours, hybrid"], batches.pop(), clock)]}
    warm_up(toolcrib)
    again = "ours, hybrid, asked before"
    for _ in range(ROUNDS):
        # Modes that encode queries share a cache, so each gets a separate batch.
        shared = batches.pop()
        for name, turn in turns.items():
            queries = batches.pop() if "hybrid" in name or "encoder" in name else shared
            best.setdefault(name, []).append(measure_turns(turn, queries, clock))
            if name == "ours, hybrid":
                best.setdefault(again, []).append(measure_turns(turn, queries, clock))
    lines = [
        f"# One turn over {len(rows):,} tools",
        "",
        "`python -m benchmarks.turn`. CPU milliseconds, in one thread, for the tools of a request and the "
        f"answer to one search; medians of {QUERIES} turns, the best of {ROUNDS} rounds. *Encoding* is "
        "what the encoder takes to read the query, *the rest* is all else of the turn.",
        "",
        "| | median | slowest tenth | encoding | the rest | Pydantic AI takes | bigtool takes |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    typical = {name: min(median(times.turns) for times in all) for name, all in best.items()}
    for name, rounds in best.items():
        slow = min(sorted(times.turns)[len(times.turns) * 9 // 10] for times in rounds)
        encoding = min(median(times.encoding) for times in rounds)
        rest = min(median(times.rest) for times in rounds)
        bigtool = "langgraph-bigtool, our encoder" if encoding > 0.01 else "langgraph-bigtool"
        peers = [_factor(typical, peer, name) for peer in ("Pydantic AI", bigtool)]
        lines.append(
            f"| {name} | {typical[name]:.2f} | {slow:.2f} | {encoding:.2f} | {rest:.2f} | {' | '.join(peers)} |"
        )
    machine = ", ".join(describe_machine().values())
    return "\n".join([*lines, "", *absent, f"{machine}.", ""])


def _factor(typical: dict[str, float], peer: str, name: str) -> str:
    if peer not in typical or not name.startswith("ours"):
        return ""
    return f"{typical[peer] / typical[name]:.1f} ×"


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

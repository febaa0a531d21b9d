"""What the first search of a new catalog costs, and what it costs with cached vectors: `python -m benchmarks.first_day`.

Each step runs in a separate process, with one thread. `--before` names the `src` folder of another version, whose
lexical index is built in the same run, by turns.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import click

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine

ROOT = Path(__file__).resolve().parent.parent
INDEX = """
import sys, time
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.lexical.ranker import LexicalRanker
catalog = read_catalog_file(sys.argv[1])
started = time.process_time()
LexicalRanker().fit(catalog)
print(time.process_time() - started)
"""
TANTIVY = """
import sys, time
import tantivy
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.lexical.fields import TOOL_FIELDS
tools = list(read_catalog_file(sys.argv[1]))
started = time.process_time()
builder = tantivy.SchemaBuilder()
for field in TOOL_FIELDS.fields:
    builder.add_text_field(field.name, tokenizer_name="en_stem")
index = tantivy.Index(builder.build())
writer = index.writer(num_threads=1)
for tool in tools:
    texts = TOOL_FIELDS.extract_texts(tool)
    writer.add_document(tantivy.Document(**{f.name: text for f, text in zip(TOOL_FIELDS.fields, texts)}))
writer.commit()
index.reload()
print(time.process_time() - started)
"""
ENCODE = """
import sys, time
if sys.argv[3] == "numpy": sys.modules["onnxruntime"] = None
from toolcrib import Catalog, read_catalog_file, use_vector_cache
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.search.dense.tool_text import build_tool_text
tools = list(read_catalog_file(sys.argv[1]))
texts = [build_tool_text(tool) for tool in tools[:: max(len(tools) // int(sys.argv[4]), 1)]]
DEFAULT_ENCODER.embed_tools(["warm up: load the weights"])
with use_vector_cache(sys.argv[2]):
    started = time.process_time()
    DEFAULT_ENCODER.embed_tools(texts)
    print((time.process_time() - started) / len(texts))
"""


def _run(script: str, *arguments: str, source: Path = ROOT / "src") -> float:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-c", script, *arguments]
    environment = {**os.environ, **threads, "PYTHONPATH": str(source)}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--before", type=click.Path(path_type=Path), default=None, help="The src folder of another version.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--tools", "count", type=click.IntRange(min=1), default=256, show_default=True, help="Tools to encode.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/first_day.md")
def main(data: Path | None, before: Path | None, rounds: int, count: int, out: Path) -> None:
    """Measure, and write the table."""
    file = str(data_folder(data) / "mcp_catalog" / "tools.jsonl")
    steps: dict[str, list[float]] = {"ours": [], "tantivy": [], "before": []}
    for _ in range(rounds):
        steps["ours"].append(_run(INDEX, file))
        steps["tantivy"].append(_run(TANTIVY, file))
        if before is not None:
            steps["before"].append(_run(INDEX, file, source=before))
    ours = median(steps["ours"])
    lines = [
        "# The first day: index and vectors of a new catalog",
        "",
        f"Measured on: {json.dumps(describe_machine()['processor'])}, one thread, CPU time, median of {rounds} runs, the "
        "catalog of real MCP servers (5,744 tools). Made by `python -m benchmarks.first_day`.",
        "",
        "| lexical index | seconds | to ours |",
        "|---|---:|---:|",
        f"| ours | {ours:.2f} | 1.0x |",
        *(
            f"| {name} | {median(found):.2f} | {median(found) / ours:.1f}x |"
            for name, found in (("Tantivy", steps["tantivy"]), ("ours, before", steps["before"]))
            if found
        ),
        "",
        f"| vector of a tool ({count} tools) | encoded | read from the cache folder | times cheaper |",
        "|---|---:|---:|---:|",
    ]
    for backend in ("numpy", "onnxruntime"):
        with tempfile.TemporaryDirectory() as folder:
            new, read = (_run(ENCODE, file, folder, backend, str(count)) * 1e3 for _ in range(2))
        lines.append(f"| {backend} | {new:.2f} ms | {read:.3f} ms | {new / read:.0f}x |")
    out.write_text("\n".join([*lines, ""]), encoding="utf-8")
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()

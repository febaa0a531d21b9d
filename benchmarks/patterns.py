"""Compare regex search with a plain loop of `re.search` over the same texts.

python -m benchmarks.patterns path/to/mcp_catalog/tools.jsonl
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from toolcrib.adapters.format_detection import tools_from_any
from toolcrib.core.catalog import Catalog
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.regex import RegexRanker, searchable_texts

REPEATS = 5
PATTERNS = (
    "weather|forecast",
    "get_.*_data",
    "(?i)slack",
    "^create_",
    r"\bemail\b",
    "(?i)send.*mail",
    r"(?i)\w+_\w+_id$",
    r"(\w)\1\1",
    "(?i)github|gitlab|bitbucket",
    "(?:list|get)_(?:repo|issue)s?",
    "zzzz",
    "e",
)


def main(path: Path) -> None:
    """Print the milliseconds of CPU time of both for each pattern, the best of some runs."""
    tools = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    catalog = Catalog(tools_from_any(tools))
    index = RegexRanker(budget_seconds=60).fit(catalog)
    texts = [text for tool in catalog for _, text in searchable_texts(tool)]
    print(f"{len(catalog):,} tools, {len(texts):,} texts")
    for pattern in PATTERNS:
        ours = _milliseconds(partial(index.rank, ParsedQuery(pattern)))
        plain = _milliseconds(partial(_search_all, re.compile(pattern), texts))
        print(f"{pattern:32} ours {ours:7.1f} ms   re {plain:7.1f} ms   {ours / plain:4.2f} x")


def _search_all(pattern: re.Pattern[str], texts: list[str]) -> list[int]:
    return [number for number, text in enumerate(texts) if pattern.search(text)]


def _milliseconds(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best * 1_000


if __name__ == "__main__":
    main(Path(sys.argv[1]))

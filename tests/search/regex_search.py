"""Search lists of texts with a pattern: by the regex ranker, and by Python's `re`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from toolcrib import Catalog, Tool
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.regex import RegexIndex, RegexRanker, compile_pattern


def frozen_clock() -> float:
    return 0.0


def index_texts(
    texts: Sequence[str],
    *,
    budget_seconds: float = 0.05,
    budget_seconds_per_tool: float = 0.0,
    clock: Callable[[], float] = time.thread_time,
    ignore_case: bool = False,
) -> RegexIndex:
    """Return a regex index of one tool per text, whose slots are the indexes of the texts."""
    ranker = RegexRanker(
        ignore_case=ignore_case,
        budget_seconds=budget_seconds,
        budget_seconds_per_tool=budget_seconds_per_tool,
        texts=lambda tool: [("description", texts[int(tool.name)])],
        clock=clock,
    )
    return ranker.fit(Catalog([Tool(str(number)) for number in range(len(texts))]))


def find_with_ranker(pattern: str, texts: Sequence[str], *, ignore_case: bool = False) -> list[int]:
    """Return the indexes of the texts that the ranker finds, without a time limit."""
    index = index_texts(texts, budget_seconds=60, clock=frozen_clock, ignore_case=ignore_case)
    slots: list[int] = index.rank(ParsedQuery(pattern)).slots.tolist()
    return slots


def find_interruptibly(pattern: str, texts: Sequence[str], *, ignore_case: bool = False) -> list[int]:
    """Return the indexes of the texts that are found by the search that can time out."""
    search = compile_pattern(pattern, ignore_case).search_interruptibly
    return [index for index, text in enumerate(texts) if search(text)]


def find_with_re(pattern: str, texts: Sequence[str], flags: int = 0) -> list[int]:
    """Return the indexes of the texts that `re.search` finds."""
    search = re.compile(pattern, flags).search
    return [index for index, text in enumerate(texts) if search(text)]

"""What Python's `re` finds, what we find, and clocks to find it by."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.regex import Deadline, Passages, Pattern, read


def matching(
    passages: Passages,
    pattern: Pattern,
    *,
    budget_seconds: float = 0.05,
    clock: Callable[[], float] = time.thread_time,
) -> NDArray[np.int32]:
    return passages.matching(pattern, Deadline(budget_seconds, clock))


def stopped_clock() -> float:
    return 0.0


class ClockThatRunsOut:
    """Shows 0 for some looks and far later ever after."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def __call__(self) -> float:
        self.looks -= 1
        return 0.0 if self.looks >= 0 else 1e9


def found(pattern: str, texts: Sequence[str], *, ignore_case: bool = False) -> list[int]:
    """What we find, with all the time it takes."""
    understood = read(pattern, ignore_case=ignore_case)
    indexes = matching(Passages(texts), understood, budget_seconds=60, clock=stopped_clock)
    return list(map(int, indexes))


def truth(pattern: str, texts: Sequence[str], flags: int = 0) -> list[int]:
    """What Python finds."""
    search = re.compile(pattern, flags).search
    return [index for index, text in enumerate(texts) if search(text)]

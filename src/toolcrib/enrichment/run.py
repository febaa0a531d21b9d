"""Write and check example requests for many tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, NamedTuple

from toolcrib.core.tool import Tool
from toolcrib.enrichment.checks import CheckedRequests
from toolcrib.enrichment.writer import RequestWriter
from toolcrib.errors import EnrichmentFailed

# A model that fails for this many tools in a row is not asked again.
MAX_FAILURES_IN_A_ROW: Final = 5
MAX_JOBS: Final = 16
_TOOLS_PER_JOB: Final = 2

CheckRequests = Callable[[Tool, Sequence[str]], CheckedRequests]


class WrittenRequests(NamedTuple):
    """The requests that were written for a tool, or why there are none."""

    tool: Tool
    checked: CheckedRequests
    error: str = ""


def write_checked_requests(
    tools: Sequence[Tool], writer: RequestWriter, check: CheckRequests, *, count: int, jobs: int = 1
) -> Iterator[WrittenRequests]:
    """Yield the checked requests of each tool, in order; `jobs` requests to the model run at a time.

    A failure affects one tool. Raises `EnrichmentFailed` after `MAX_FAILURES_IN_A_ROW`.
    """

    def write(tool: Tool) -> list[str] | EnrichmentFailed:
        try:
            return writer.write_requests(tool, count)
        except EnrichmentFailed as error:
            return error

    failures = 0
    remaining = iter(tools)
    with ThreadPoolExecutor(min(jobs, MAX_JOBS)) as executor:
        # In small batches, so that a model that fails, or a user who stops, costs few requests.
        while batch := list(islice(remaining, jobs * _TOOLS_PER_JOB)):
            for tool, written in zip(batch, executor.map(write, batch), strict=True):
                if isinstance(written, EnrichmentFailed):
                    failures += 1
                    if failures >= min(MAX_FAILURES_IN_A_ROW, len(tools)):
                        raise written
                    yield WrittenRequests(tool, CheckedRequests((), ()), str(written))
                    continue
                failures = 0
                yield WrittenRequests(tool, check(tool, written))

"""From what happens in one conversation to evidence: which search led to which call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from toolcrib.core.experience import Use

# Older searches than these have nothing to do with a call.
MAX_SEARCHES: Final = 8
# Tools of one search that a call is looked for among.
MAX_RETURNED: Final = 100


@dataclass(frozen=True, slots=True)
class _Search:
    query: str
    returned: frozenset[str]
    succeeded: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Trail:
    """The latest searches of one conversation and what came of them. It never changes.

    A call counts for the latest search that returned the tool, and once, however often it is
    repeated. Tools that one search led to share its weight: the second counts half, the third a
    third. A call to a tool that no search returned is no evidence.
    """

    _searches: tuple[_Search, ...] = ()

    def searched(self, query: str, tool_ids: Iterable[str]) -> Trail:
        """The trail after a search that returned these tools."""
        returned = frozenset([*tool_ids][:MAX_RETURNED])
        return Trail((*self._searches, _Search(query, returned))[-MAX_SEARCHES:])

    def called(self, tool_id: str, succeeded: bool = True) -> tuple[Trail, Use | None]:
        """The trail after a call, and what is to be learned from it, if anything."""
        for at in reversed(range(len(self._searches))):
            search = self._searches[at]
            if tool_id not in search.returned:
                continue
            known = search.succeeded if succeeded else search.failed
            if tool_id in known:
                return self, None
            later = known | {tool_id}
            changed = (
                replace(search, succeeded=later) if succeeded else replace(search, failed=later)
            )
            trail = Trail((*self._searches[:at], changed, *self._searches[at + 1 :]))
            return trail, Use(search.query, tool_id, succeeded, 1 / len(later))
        return self, None

"""From what happens in one conversation to evidence: which search led to which call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from toolcrib.search.feedback.experience import Use, terms

# Older searches than these have nothing to do with a call.
MAX_SEARCHES: Final = 8
# Tools of one search that a call is looked for among.
MAX_RETURNED: Final = 100
# Uses that a conversation remembers, so that none of them counts again.
MAX_COUNTED: Final = 256


@dataclass(frozen=True, slots=True)
class _Search:
    query: str
    returned: frozenset[str]
    succeeded: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Trail:
    """The latest searches of one conversation and what came of them. It never changes.

    A call counts for the latest search that returned the tool. The same words count for the same
    tool once as a success and once as a failure, however often both are repeated: one conversation
    is one witness. Tools that one search led to share its weight: the second counts half, the third
    a third. A call to a tool that no search returned is no evidence.
    """

    _searches: tuple[_Search, ...] = ()
    _counted: tuple[int, ...] = ()

    def searched(self, query: str, tool_ids: Iterable[str]) -> Trail:
        """The trail after a search that returned these tools."""
        returned = frozenset([*tool_ids][:MAX_RETURNED])
        searches = (*self._searches, _Search(query, returned))[-MAX_SEARCHES:]
        return replace(self, _searches=searches)

    def called(self, tool_id: str, succeeded: bool = True) -> tuple[Trail, Use | None]:
        """The trail after a call, and what is to be learned from it, if anything."""
        for at in reversed(range(len(self._searches))):
            search = self._searches[at]
            if tool_id not in search.returned:
                continue
            known = search.succeeded if succeeded else search.failed
            mark = _mark(search.query, tool_id, succeeded)
            if tool_id in known or mark in self._counted:
                return self, None
            later = known | {tool_id}
            changed = (
                replace(search, succeeded=later) if succeeded else replace(search, failed=later)
            )
            searches = (*self._searches[:at], changed, *self._searches[at + 1 :])
            trail = Trail(searches, (*self._counted, mark)[-MAX_COUNTED:])
            return trail, Use(search.query, tool_id, succeeded, 1 / len(later))
        return self, None


def _mark(query: str, tool_id: str, succeeded: bool) -> int:
    """What a use is known by: the words that it teaches, in whatever order, the tool, and the end."""
    told = "\0".join([*sorted(terms(query)), tool_id, str(succeeded)])
    digest = blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")

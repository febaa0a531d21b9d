"""What use has taught: which words were said when which tool served. Nobody's sentences are kept.

Somebody searches, one of the tools found is called, and the call succeeds. The words of the query
are then evidence for that tool, also those that the tool itself does not have. What is kept of a
word is a keyed hash, and for each tool a weight that saturates, fades and can only be positive.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

from toolcrib.core import text
from toolcrib.errors import InvalidConfig, InvalidEvidence

MIN_SALT_BYTES: Final = 16
# What is read of a query.
MAX_CHARS: Final = 4_000
MAX_TERMS: Final = 32
# What is kept. A tool has its strongest terms, a term its strongest tools; when there are too many
# pairs in all, the tool that has gone longest without evidence is forgotten.
MAX_TERMS_A_TOOL: Final = 128
MAX_TOOLS_A_TERM: Final = 64
MAX_PAIRS: Final = 100_000
MAX_KEPT_QUERIES: Final = 10_000
MAX_ID_CHARS: Final = 512

# No pair weighs more than so many uses, however often it is claimed.
MAX_WEIGHT: Final = 4.0
# A call also fails for reasons that have nothing to do with the choice of the tool.
FAILURE_WEIGHT: Final = 0.5
# After so many further uses of the same word, whichever tool they led to, a use counts half.
HALF_LIFE: Final = 50
# Faded below this, a pair is dropped.
MIN_WEIGHT: Final = 0.05
# How soon further uses stop counting: one use reaches half of what any number could.
SATURATION: Final = 1.0

_FORMAT: Final = 1
_CHECKED: Final = "toolcrib experience"


@dataclass(frozen=True, slots=True)
class Use:
    """One piece of evidence: a query, a tool that it returned and that was called, and how it went.

    `weight`, above 0 and at most 1, is less where a search has several uses to share it.
    """

    query: str
    tool_id: str
    succeeded: bool = True
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not isinstance(self.tool_id, str):
            raise InvalidEvidence("a use needs the query and the id of the tool, both as text")
        if not 0 < len(self.tool_id) <= MAX_ID_CHARS:
            raise InvalidEvidence(
                f"a use needs the id of a tool, of 1 to {MAX_ID_CHARS} characters; "
                f"this one has {len(self.tool_id):,}"
            )
        if not isinstance(self.weight, int | float) or not 0 < self.weight <= 1:
            raise InvalidEvidence(f"a use weighs more than 0 and at most 1, not {self.weight!r}")


class Teacher(Protocol):
    """Who knows what served before, such as an experience."""

    def support(self, query: str) -> Mapping[str, float]:
        """The tools that served queries with these words, each with how much says so: 0 to 1."""

    def words_for(self, query: str, tool_id: str) -> Mapping[str, float]:
        """The words of a query that speak for a tool, and what each adds to its support."""


class ExperienceStore(Protocol):
    """Where the experience of a deployment outlives a process."""

    def load(self) -> Mapping[str, Any] | None:
        """What was saved last; None if nothing was."""

    def save(self, data: Mapping[str, Any]) -> None:
        """Keep this plain data in place of what was saved before."""


class MemoryStore:
    """A store that lasts as long as the process, for tests and single runs."""

    def __init__(self) -> None:
        self._saved: str | None = None

    def load(self) -> Mapping[str, Any] | None:
        """What was saved last, as a copy; None if nothing was."""
        if self._saved is None:
            return None
        saved: Mapping[str, Any] = json.loads(self._saved)
        return saved

    def save(self, data: Mapping[str, Any]) -> None:
        """Keep this data."""
        self._saved = json.dumps(data)


class Word(NamedTuple):
    """A word of a query, as written, and the hash it is known by."""

    written: str
    digest: int


class Experience:
    """The evidence of one deployment.

    Recording while others search is safe: recorders take turns, and what they replace are whole
    rows, so that a search sees a row as it was or as it is. A search that runs meanwhile may see
    some words of a use and not yet others.
    """

    def __init__(self, salt: bytes, *, keep_queries: int = 0, max_pairs: int = MAX_PAIRS) -> None:
        """`salt` is a secret of this deployment.

        `keep_queries` switches on keeping the latest uses with their queries, as many as it says,
        in memory alone. `max_pairs` is how many pairs of a word and a tool are kept.
        """
        if not isinstance(salt, bytes) or len(salt) < MIN_SALT_BYTES:
            raise InvalidConfig(
                f"the salt must be at least {MIN_SALT_BYTES} secret bytes; make one with "
                "`secrets.token_bytes(32)` and keep it where you keep secrets"
            )
        if not isinstance(keep_queries, int) or not 0 <= keep_queries <= MAX_KEPT_QUERIES:
            raise InvalidConfig(
                f"keep_queries must be from 0 (none) to {MAX_KEPT_QUERIES:,}, not {keep_queries!r}"
            )
        if not isinstance(max_pairs, int) or max_pairs < 1:
            raise InvalidConfig(f"max_pairs must be a whole number from 1, not {max_pairs!r}")
        self._key = blake2b(salt).digest()
        # By term, the weight of each tool. A row is never changed, only replaced.
        self._rows: dict[int, Mapping[str, float]] = {}
        # In the order in which tools last got evidence; for recorders alone.
        self._terms: dict[str, dict[int, None]] = {}
        self._pieces = 0
        self._pairs = 0
        self._max_pairs = min(max_pairs, MAX_PAIRS)
        self._kept: deque[Use] = deque(maxlen=keep_queries)
        # A lock, which starts no thread.
        self._recording = Lock()

    @property
    def pieces(self) -> int:
        """How many pieces of evidence there have been."""
        return self._pieces

    @property
    def pairs(self) -> int:
        """How many pairs of a term and a tool are kept."""
        return self._pairs

    @property
    def tool_ids(self) -> frozenset[str]:
        """The tools that there is evidence for."""
        with self._recording:
            return frozenset(self._terms)

    @property
    def rows(self) -> dict[int, Mapping[str, float]]:
        """By the hash of a word, the weight of each tool. A row never changes; it is replaced."""
        with self._recording:
            return dict(self._rows)

    def row(self, digest: int) -> Mapping[str, float]:
        """The weights of one word."""
        return self._rows.get(digest, {})

    @property
    def kept(self) -> tuple[Use, ...]:
        """The latest uses with their queries, if keeping them was switched on."""
        with self._recording:
            return tuple(self._kept)

    def record(self, use: Use) -> None:
        """Learn from a use. Success counts for the tool; failure takes back, never below nothing."""
        step = use.weight if use.succeeded else -FAILURE_WEIGHT * use.weight
        with self._recording:
            self._pieces += 1
            self._kept.append(use)
            for word in self.words(use.query):
                self._weigh(word.digest, use.tool_id, step)
            if use.tool_id in self._terms:
                self._terms[use.tool_id] = self._terms.pop(use.tool_id)
            while self._pairs > self._max_pairs:
                self._forget(next(iter(self._terms)))

    def forget(self, tool_id: str) -> None:
        """Drop all evidence for a tool, and the queries that were kept of it."""
        with self._recording:
            self._forget(tool_id)
            others = [use for use in self._kept if use.tool_id != tool_id]
            self._kept = deque(others, self._kept.maxlen)

    def clear(self) -> None:
        """Drop everything: as on the first day."""
        with self._recording:
            for tool_id in [*self._terms]:
                self._forget(tool_id)
            self._kept.clear()
            self._pieces = 0

    def support(self, query: str) -> dict[str, float]:
        """The tools that served queries with these words, each with how much says so: 0 to 1."""
        return supported(self._shares(query))

    def words_for(self, query: str, tool_id: str) -> dict[str, float]:
        """The words of a query that speak for a tool, and what each adds to its support."""
        return {word: shares[tool_id] for word, shares in self._shares(query) if tool_id in shares}

    def to_data(self) -> dict[str, Any]:
        """What is known as plain data for JSON, without the salt and without queries."""
        with self._recording:
            tools = {
                tool_id: {f"{term:016x}": self._rows[term][tool_id] for term in terms}
                for tool_id, terms in self._terms.items()
            }
            return {
                "format": _FORMAT,
                "salt_check": self._check(),
                "pieces": self._pieces,
                "tools": tools,
            }

    @classmethod
    def from_data(cls, data: Any, salt: bytes, *, keep_queries: int = 0) -> Experience:
        """The experience that `to_data` told of, under the same salt."""
        experience = cls(salt, keep_queries=keep_queries)
        experience._read(data)
        return experience

    @classmethod
    def from_rows(
        cls, rows: Mapping[int, Mapping[str, float]], salt: bytes, *, max_pairs: int = MAX_PAIRS
    ) -> Experience:
        """The experience that has these `rows`, as they were made under the same salt."""
        experience = cls(salt, max_pairs=max_pairs)
        for digest, weights in rows.items():
            experience._put(digest, dict(weights))
        while experience._pairs > experience._max_pairs:
            experience._forget(next(iter(experience._terms)))
        return experience

    def save(self, store: ExperienceStore) -> None:
        """Put what is known into a store."""
        store.save(self.to_data())

    @classmethod
    def load(cls, store: ExperienceStore, salt: bytes, *, keep_queries: int = 0) -> Experience:
        """What a store has; an empty experience if it has none."""
        data = store.load()
        if data is None:
            return cls(salt, keep_queries=keep_queries)
        return cls.from_data(data, salt, keep_queries=keep_queries)

    def _read(self, data: Any) -> None:
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise InvalidEvidence(
                f"not a saved experience of format {_FORMAT}; start without it, or load what "
                "`save` has written"
            )
        if data.get("salt_check") != self._check():
            raise InvalidEvidence(
                "the experience was saved under another salt, so its words cannot be known again; "
                "load it with the salt it was made with, or start without it"
            )
        rows: dict[int, dict[str, float]] = {}
        try:
            self._pieces = int(data["pieces"])
            for tool_id, terms in data["tools"].items():
                known = Use("", tool_id).tool_id
                _check_count("words of a tool", len(terms), MAX_TERMS_A_TOOL)
                for term, weight in terms.items():
                    rows.setdefault(int(term, 16), {})[known] = _checked(weight)
            for weights in rows.values():
                _check_count("tools of a word", len(weights), MAX_TOOLS_A_TERM)
            # In the order of tools, so that it stays known which was used last.
            self._terms = {
                tool_id: {int(term, 16): None for term in terms}
                for tool_id, terms in data["tools"].items()
                if terms
            }
        except (AttributeError, ArithmeticError, KeyError, TypeError, ValueError) as fault:
            raise InvalidEvidence(
                f"the saved experience is damaged ({fault}); restore a copy, or start without it"
            ) from fault
        self._rows = dict(rows)
        self._pairs = sum(map(len, rows.values()))
        if self._pairs > MAX_PAIRS:
            raise InvalidEvidence(
                f"the saved experience has {self._pairs:,} pairs; the limit is {MAX_PAIRS:,}; "
                "start without it"
            )

    def _shares(self, query: str) -> Iterator[tuple[str, dict[str, float]]]:
        if not self._terms:
            return iter(())
        asked = [(word.written, self.row(word.digest)) for word in self.words(query)]
        return shares(asked, len(self._terms))

    def words(self, query: str) -> list[Word]:
        """The words of a query that may say something about a tool, each once."""
        return [Word(written, self._digest(term)) for term, written in terms(query).items()]

    def _digest(self, term: str) -> int:
        digest = blake2b(term.encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big")

    def _check(self) -> str:
        return f"{self._digest(_CHECKED):016x}"

    def _weigh(self, term: int, tool_id: str, step: float) -> None:
        """Add to a pair, or take from it; what was known of the term fades by as much as is added."""
        fading = 0.5 ** (max(step, 0.0) / HALF_LIFE)
        weights = {id: fading * weight for id, weight in self._rows.get(term, {}).items()}
        weights[tool_id] = min(weights.get(tool_id, 0.0) + step, MAX_WEIGHT)
        weights = {id: weight for id, weight in weights.items() if weight >= MIN_WEIGHT}
        if len(weights) > MAX_TOOLS_A_TERM:
            del weights[min(weights, key=weights.__getitem__)]
        self._put(term, weights)
        terms = self._terms.get(tool_id, {})
        if len(terms) > MAX_TERMS_A_TOOL:
            # Of the weakest the one known longest.
            self._drop(min(terms, key=lambda term: self._rows[term][tool_id]), tool_id)

    def _drop(self, term: int, tool_id: str) -> None:
        self._put(term, {id: kept for id, kept in self._rows[term].items() if id != tool_id})

    def _forget(self, tool_id: str) -> None:
        for term in [*self._terms.get(tool_id, ())]:
            self._drop(term, tool_id)

    def _put(self, term: int, weights: Mapping[str, float]) -> None:
        """Replace a row, and keep count of what each tool has."""
        before = self._rows.get(term, {})
        if weights:
            self._rows[term] = weights
        else:
            self._rows.pop(term, None)
        for tool_id in weights:
            self._terms.setdefault(tool_id, {})[term] = None
        for tool_id in before.keys() - weights.keys():
            del self._terms[tool_id][term]
            if not self._terms[tool_id]:
                del self._terms[tool_id]
        self._pairs += len(weights) - len(before)


def terms(query: str) -> dict[str, str]:
    """What a query may teach: its words by their stems, each once, as it was first written."""
    found: dict[str, str] = {}
    for written, term, _ in text.words(query[:MAX_CHARS]):
        if not text.is_stop_word(term) and not _is_number(term):
            found.setdefault(term, written)
            if len(found) == MAX_TERMS:
                break
    return found


def shares(
    asked: Sequence[tuple[str, Mapping[str, float]]], tools: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each word that is asked for with its row, and what it adds to the support of each tool.

    `tools` is how many have evidence. A word counts by how few tools it has served. Words that are
    not known count as well, for no tool. Each tool's weight saturates by itself, so that none takes
    from another.
    """
    ideal = sum(_rarity(tools, len(row)) for _, row in asked)
    for written, row in asked:
        worth = _rarity(tools, len(row)) / ideal
        yield written, {id: worth * weight / (SATURATION + weight) for id, weight in row.items()}


def supported(shares: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, float]:
    """What the words of a query say for each tool, together."""
    found: dict[str, float] = {}
    for _, share_of in shares:
        for tool_id, share in share_of.items():
            found[tool_id] = found.get(tool_id, 0.0) + share
    return found


def _rarity(tools: int, count: int) -> float:
    """How much a term says that has served `count` of all tools with evidence."""
    return math.log(1 + (max(tools - count, 0) + 0.5) / (count + 0.5))


def _is_number(term: str) -> bool:
    """Whether a term is mostly digits: dates, amounts, telephone numbers say nothing of a tool."""
    return 2 * sum(map(str.isdigit, term)) >= len(term)


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"{count:,} {what}, where {most} are kept")


def _checked(weight: Any) -> float:
    if not 0 < weight <= MAX_WEIGHT:
        raise ValueError(f"a weight of {weight!r}")
    return float(weight)

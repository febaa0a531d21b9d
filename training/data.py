"""What the model learns from: tools, and the queries that ask for them.

Read from a data folder that is not part of the repository. Only the files named here are read;
`queries.jsonl`, the questions of the evaluation sets, is not one of them.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolcrib.core.tool import Tool
from toolcrib.search.dense.tool_text import build_tool_text

PAIRS: Final = "training_pairs/pairs.jsonl"
# More of the same kind, written for this repository: ids of tools and queries, no tool's text.
OWN_PAIRS: Final = Path(__file__).with_name("queries.jsonl")
STYLES: Final = ("need", "ask", "agent")
# How many queries of each training file an epoch sees: large sets of alike queries about few tools
# would drown the rest.
TRAIN_FILES: Final = {
    "ultratool": 1500,
    "metatool": 1500,
    "sealtools": 700,
    "bfcl": 224,
    "toollens": 300,
    "apibench": 200,
}
CATALOGS: Final = ("mcp_catalog", "catalog_toucan", "catalog_mcpzero", "catalog_composio")
NAMES_PER_EPOCH: Final = 800
# Every fifth tool with hand-written queries is kept apart, as a witness.
HELD_BACK: Final = 5

# Queries that say in another order what an evaluation set asks, as fingerprints of their words: that
# set's own questions are not read.
LEFT_OUT: Final = frozenset({"a3d39eebf09a6066"})

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Lesson:
    """One tool and some queries it serves; `also` serve them too, so they are no counter-example."""

    tool: Key
    queries: tuple[str, ...]
    also: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Data:
    """Everything to learn from and the witness that is kept apart."""

    tools: dict[Key, Tool]
    pairs: list[Lesson]
    own: list[Lesson]
    witness: list[Lesson]
    asked: dict[str, list[Lesson]]

    def epoch(self, seed: int, part: float, with_own: bool) -> list[Lesson]:
        """The lessons of one epoch, in the order to take them: a part of all, and our own."""
        chance = random.Random(seed)
        lessons = chance.sample(self.pairs, round(part * len(self.pairs)))
        lessons += self.own if with_own else []
        for name, count in TRAIN_FILES.items():
            found = self.asked[name]
            lessons += chance.sample(found, round(part * min(count, len(found))))
        kept_apart = {lesson.tool for lesson in self.witness}
        named = sorted(key for key in self.tools if key[0] in CATALOGS and key not in kept_apart)
        for key in chance.sample(named, round(part * NAMES_PER_EPOCH)):
            lessons.append(Lesson(key, (own_words(self.tools[key], chance),)))
        chance.shuffle(lessons)
        return lessons

    def passages(self) -> dict[Key, str]:
        """The text of every tool that a lesson is about."""
        lessons = [*self.pairs, *self.own, *self.witness, *(one for some in self.asked.values() for one in some)]
        keys = {lesson.tool for lesson in lessons} | {key for key in self.tools if key[0] in CATALOGS}
        return {key: build_tool_text(self.tools[key]) for key in sorted(keys)}


def read(folder: Path) -> Data:
    """The data of a folder that is laid out as `training/README.md` says."""
    tools: dict[Key, Tool] = {}
    for name in (*CATALOGS, *TRAIN_FILES):
        for row in rows(folder / name / "tools.jsonl"):
            tools[name, str(row["id"])] = tool(row)
    asked = taught(folder)
    given, own = asked.pop(PAIRS), asked.pop(OWN_PAIRS.name)
    pairs = [lesson for lesson in given if not is_held_back(lesson.tool)]
    witness = [lesson for lesson in (*given, *own) if is_held_back(lesson.tool)]
    own = [lesson for lesson in own if not is_held_back(lesson.tool)]
    return Data(tools, pairs, own, witness, asked)


def taught(folder: Path) -> dict[str, list[Lesson]]:
    """The lessons of each file, but for those with a query that is left out."""
    found = {PAIRS: _pairs(folder / PAIRS), OWN_PAIRS.name: _pairs(OWN_PAIRS)}
    for name in TRAIN_FILES:
        found[name] = _asked(folder / name / "train.jsonl", name)
    return {name: list(filter(_is_taken, lessons)) for name, lessons in found.items()}


def words(text: str) -> str:
    """A text's words in the order of the alphabet, without case and signs."""
    return " ".join(sorted(re.findall(r"[^\W_]+", text.lower())))


def is_held_back(key: Key) -> bool:
    """Whether the queries of a tool are kept apart: by its id alone, so that it never changes."""
    digest = hashlib.blake2b("\0".join(key).encode(), digest_size=4).digest()
    return int.from_bytes(digest) % HELD_BACK == 0


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def tool(row: dict[str, Any]) -> Tool:
    """A tool from its row in `tools.jsonl`."""
    return Tool(
        row["name"],
        row.get("description") or "",
        row.get("input_schema"),
        id=str(row["id"]),
        title=row.get("title") or "",
        server=row.get("server") or "",
        category=row.get("category") or "",
    )


def _is_taken(lesson: Lesson) -> bool:
    return not any(
        hashlib.blake2b(words(query).encode(), digest_size=8).hexdigest() in LEFT_OUT for query in lesson.queries
    )


def _pairs(path: Path) -> Iterator[Lesson]:
    for row in rows(path):
        yield Lesson((row["source"], str(row["id"])), tuple(row[style] for style in STYLES))


def _asked(path: Path, name: str) -> Iterator[Lesson]:
    chance = random.Random(name)
    for row in rows(path):
        keys = [(name, str(id)) for id in row["relevant"]]
        if keys:
            yield Lesson(chance.choice(keys), (row["query"],), frozenset(keys))


def own_words(tool: Tool, chance: random.Random) -> str:
    """A tool asked for in its own words: its name, as it is or in words, or its first sentence."""
    head = build_tool_text(tool).split(":", 1)[0]
    sentence = tool.description.split(". ")[0].strip()
    return chance.choice([tool.name, head, " ".join(sentence.split()[:25]) or head])

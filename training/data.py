"""Read the training data: tools, the queries that ask for them, and the side of each server.

The data is in a folder that is not part of the repository. Only the files named here are read. A
`queries.jsonl` in that folder has the queries of an eval set and is not one of them.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolcrib.core.tool import Tool
from training.servers import Key, Side, normalize_server, split_servers

PAIRS: Final = "training_pairs/pairs.jsonl"
# More of the same kind, written for this repository: ids of tools and queries, no text of a tool.
OWN_PAIRS: Final = Path(__file__).with_name("queries.jsonl")
STYLES: Final = ("need", "ask", "agent")
# The queries of each public set in an epoch. Large sets have many similar queries about few tools.
PUBLIC_SETS: Final = {
    "ultratool": 1200,
    "metatool": 1000,
    "sealtools": 500,
    "bfcl": 224,
    "toollens": 150,
    "apibench": 100,
}
CATALOGS: Final = ("mcp_catalog", "catalog_toucan", "catalog_mcpzero", "catalog_composio", "toolbench")
# Tools of this set have queries in `queries.jsonl`; its own queries are not used.
MORE_TOOLS: Final = ("toolret",)
# The examples of one server in an epoch, and how many of them are in one batch.
MAX_PER_SERVER: Final = 12
CLUMP: Final = 4
# Version 0.3 was trained on all pairs and on the first rows of the own file, except every fifth tool.
EARLIER_OWN_PAIRS: Final = 4_985
EARLIER_HELD_BACK: Final = 5

# Queries with the words of an evaluation query in another order, as hashes of their words.
LEFT_OUT: Final = frozenset({"a3d39eebf09a6066"})


@dataclass(frozen=True, slots=True)
class Example:
    """A tool with queries that it serves. The tools in `also` serve them, too."""

    tool: Key
    queries: tuple[str, ...]
    also: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The tools, the side of each tool of a catalog, and the examples of each side.

    Training continues from weights of version 0.3, which were trained on tools of held-back servers too.
    `unseen_tools` has the held-back examples of tools that those weights had not seen either, and
    `unseen_servers` those of servers that they had not seen.
    """

    tools: dict[Key, Tool]
    sides: dict[Key, Side]
    written: dict[Side, list[Example]]
    public: dict[str, list[Example]]
    unseen_tools: list[Example]
    unseen_servers: list[Example]

    def sample_epoch(self, seed: int) -> list[list[Example]]:
        """Return the examples of an epoch in clumps of one server or set, in random order."""
        chance = random.Random(seed)
        by_server: dict[tuple[str, str], list[Example]] = defaultdict(list)
        for example in self.written["train"]:
            by_server[example.tool[0], self.tools[example.tool].server].append(example)
        chosen = [
            chance.sample(some, min(MAX_PER_SERVER, len(some)) if server else len(some))
            for (_, server), some in by_server.items()
        ]
        chosen += [chance.sample(some, min(PUBLIC_SETS[name], len(some))) for name, some in self.public.items()]
        clumps = [some[at : at + CLUMP] for some in chosen for at in range(0, len(some), CLUMP)]
        chance.shuffle(clumps)
        return clumps


def read_data(folder: Path) -> TrainingData:
    """Return the data of a folder. `training/README.md` describes its layout."""
    tools: dict[Key, Tool] = {}
    for name in (*CATALOGS, *PUBLIC_SETS, *MORE_TOOLS):
        for row in read_rows(folder / name / "tools.jsonl"):
            tools[name, str(row["id"])] = parse_tool(row)
    sides = split_servers({key: tool for key, tool in tools.items() if key[0] in CATALOGS})
    found = read_examples(folder)
    pairs, own = found.pop(PAIRS), found.pop(OWN_PAIRS.name)
    written: dict[Side, list[Example]] = {"train": [], "dev": [], "test": []}
    for example in (*pairs, *own):
        # Sets without servers are not split.
        written[sides.get(example.tool, "train")].append(example)
    earlier = {example.tool for example in (*pairs, *own[:EARLIER_OWN_PAIRS])}
    known_servers = {normalize_server(tools[key].server) for key in earlier}
    held_back = [*written["dev"], *written["test"]]
    return TrainingData(
        tools,
        sides,
        written,
        public=found,
        unseen_tools=[one for one in held_back if one.tool not in earlier or _was_held_back(one.tool)],
        unseen_servers=[one for one in held_back if normalize_server(tools[one.tool].server) not in known_servers],
    )


def read_examples(folder: Path) -> dict[str, list[Example]]:
    """Return the examples of each file, without those that are left out."""
    found = {PAIRS: _read_pairs(folder / PAIRS), OWN_PAIRS.name: _read_pairs(OWN_PAIRS)}
    for name in PUBLIC_SETS:
        found[name] = _read_public(folder / name / "train.jsonl", name)
    return {name: list(filter(_is_used, examples)) for name, examples in found.items()}


def sort_words(text: str) -> str:
    """Return the words of a text in alphabetical order, without case and punctuation."""
    return " ".join(sorted(re.findall(r"[^\W_]+", text.lower())))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines file."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def parse_tool(row: dict[str, Any]) -> Tool:
    """Return the tool of a row of `tools.jsonl`."""
    return Tool(
        row["name"],
        row.get("description") or "",
        row.get("input_schema"),
        id=str(row["id"]),
        title=row.get("title") or "",
        server=row.get("server") or "",
        category=row.get("category") or "",
    )


def _was_held_back(key: Key) -> bool:
    """Return whether version 0.3 was trained without a tool."""
    digest = hashlib.blake2b("\0".join(key).encode(), digest_size=4).digest()
    return int.from_bytes(digest) % EARLIER_HELD_BACK == 0


def _is_used(example: Example) -> bool:
    return not any(
        hashlib.blake2b(sort_words(query).encode(), digest_size=8).hexdigest() in LEFT_OUT for query in example.queries
    )


def _read_pairs(path: Path) -> Iterator[Example]:
    for row in read_rows(path):
        yield Example((row["source"], str(row["id"])), tuple(row[style] for style in STYLES))


def _read_public(path: Path, name: str) -> Iterator[Example]:
    chance = random.Random(name)
    for row in read_rows(path):
        keys = [(name, str(id)) for id in row["relevant"]]
        if keys:
            yield Example(chance.choice(keys), (row["query"],), frozenset(keys))

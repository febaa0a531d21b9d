"""Queries, the tools they ask for, and what the whole encoder says of both."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.search.dense.tool_text import build_tool_text
from training import data
from training.contextual import MAX_TOKENS
from training.encoder import Encoder

CHUNK: Final = 512
# All tools of this catalog are among those that are read, asked for or not.
CATALOG: Final = "mcp_catalog"
# Tools that are asked for in their own words, too.
OWN_WORDS: Final = 9000

Ids = list[list[int]]
Read = Callable[[list[int]], Tensor]


class Asked(NamedTuple):
    """Queries and tools as word pieces, their vectors, and who asks for what, by source."""

    queries: Ids
    tools: Ids
    query_vectors: Tensor
    tool_vectors: Tensor
    # Places of a query and of the tool it asks for.
    lessons: dict[str, list[tuple[int, int]]]
    # The same for each style of the queries that are held back.
    witness: dict[str, list[tuple[int, int]]]

    @property
    def held_back(self) -> list[int]:
        """The tools that only queries of the witness ask for."""
        return sorted({tool for some in self.witness.values() for _, tool in some})

    @torch.no_grad()
    def judged(self, queries: Read, tools: Read) -> dict[str, float]:
        """How often the right tool is in the first five of those held back, as others read them."""
        held = self.held_back
        place = {tool: at for at, tool in enumerate(held)}
        read = tools(held)
        figures: dict[str, float] = {}
        for style, pairs in self.witness.items():
            asking, wanted = zip(*pairs, strict=True)
            right = torch.tensor([place[tool] for tool in wanted])[:, None]
            scores = queries(list(asking)) @ read.T
            above = (scores > scores.gather(1, right)).sum(1)
            figures[f"{style} in 5"] = round(float((above < 5).float().mean()), 4)
        return figures


def asked(lessons: data.Data, pieces: WordPieceTokenizer, encoder: Encoder) -> Asked:
    """Every query of the lessons and every tool they ask for, read by the whole encoder."""
    chance = random.Random(0)
    by_source: dict[str, list[tuple[str, data.Key]]] = {
        "hand": _pairs([*lessons.pairs, *lessons.own]),
        **{name: _pairs(some) for name, some in lessons.asked.items()},
    }
    kept_apart = {lesson.tool for lesson in lessons.witness}
    named = sorted(key for key in lessons.tools if key[0] in data.CATALOGS and key not in kept_apart)
    by_source["own words"] = [
        (data.own_words(lessons.tools[key], chance), key) for key in chance.sample(named, OWN_WORDS)
    ]
    by_style = {
        style: [(lesson.queries[at], lesson.tool) for lesson in lessons.witness] for at, style in enumerate(data.STYLES)
    }
    every = [one for some in (*by_source.values(), *by_style.values()) for one in some]
    texts = sorted({query for query, _ in every})
    keys = sorted({key for _, key in every} | {key for key in lessons.tools if key[0] == CATALOG})
    query_at, tool_at = ({one: at for at, one in enumerate(some)} for some in (texts, keys))

    def placed(pairs: list[tuple[str, data.Key]]) -> list[tuple[int, int]]:
        return [(query_at[query], tool_at[key]) for query, key in pairs]

    queries = [pieces.encode(text, MAX_TOKENS) for text in texts]
    tools = [pieces.encode(build_tool_text(lessons.tools[key]), MAX_TOKENS) for key in keys]
    return Asked(
        queries,
        tools,
        vectors(encoder, queries),
        vectors(encoder, tools),
        {name: placed(some) for name, some in by_source.items()},
        {style: placed(some) for style, some in by_style.items()},
    )


@torch.no_grad()
def vectors(encoder: Encoder, ids: Ids) -> Tensor:
    """What an encoder says of texts, some at a time."""
    order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
    parts: list[Tensor] = []
    for start in range(0, len(order), CHUNK):
        parts.append(encoder([ids[at] for at in order[start : start + CHUNK]]))
        print(f"read {start + len(parts[-1]):,} of {len(ids):,} texts", flush=True)
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(parts)[back]


def _pairs(lessons: Sequence[data.Lesson]) -> list[tuple[str, data.Key]]:
    return [(query, lesson.tool) for lesson in lessons for query in lesson.queries]

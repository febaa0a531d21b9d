"""The texts that the encoders learn from: tools and queries of the training side, and their vectors."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from torch import Tensor

from toolcrib.encoder.glossary import translate_to_english
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS
from toolcrib.search.dense.tool_text import build_tool_text
from training.data import PUBLIC_SETS, Example, TrainingData
from training.encoder import ParallelEncoder
from training.servers import Key
from training.teacher import MAX_TOOL_TOKENS

# The queries of each public set, as a multiple of those in an epoch of the teacher.
PUBLIC_QUERIES: Final = 1.5
# The tools without queries that are used of the large API directory, and of the sets without servers.
DIRECTORY, DIRECTORY_TOOLS, SET_TOOLS = "toolbench", 6_000, 4_000
# The queries that are learned without a tool: of the public sets, sentences of descriptions, and parts of queries.
MORE_PUBLIC, SENTENCES, PARTS = 6_000, 18_000, 12_000
MIN_WORDS, MAX_WORDS = 3, 25
DROPPED_WORDS: Final = 0.15

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


class TextVectors(NamedTuple):
    """The vectors of tools and queries, one row for each."""

    tools: Tensor
    queries: Tensor


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """Texts and token ids of tools and queries.

    `pairs` has the places of each query and its tool. The queries after these have no tool.
    """

    keys: list[Key]
    tools: list[str]
    queries: list[str]
    tool_ids: list[list[int]]
    query_ids: list[list[int]]
    pairs: list[tuple[int, int]]

    def encode(self, encoder: ParallelEncoder) -> TextVectors:
        """Return the vectors of all texts by an encoder."""
        return TextVectors(encoder.encode(self.tool_ids), encoder.encode(self.query_ids))


def read_texts(data: TrainingData, tokenizer: WordPieceTokenizer) -> TrainingTexts:
    """Return the queries of the training side with their tools, and other tools, none of a held-back server."""
    chance = random.Random(0)
    examples = [*data.written["train"]]
    for name, count in PUBLIC_SETS.items():
        examples += chance.sample(data.public[name], min(int(PUBLIC_QUERIES * count), len(data.public[name])))
    keys = _choose_tools(data, examples, chance)
    place = {key: at for at, key in enumerate(keys)}
    tools = [build_tool_text(data.tools[key]) for key in keys]
    queries = [translate_to_english(query) for example in examples for query in example.queries]
    asked = [place[example.tool] for example in examples for _ in example.queries]
    queries += map(translate_to_english, _sample_free_queries(data, queries, chance))
    return TrainingTexts(
        keys,
        tools,
        queries,
        [tokenizer.encode(text, MAX_TOOL_TOKENS) for text in tools],
        [tokenizer.encode(text, MAX_TOKENS) for text in queries],
        list(enumerate(asked)),
    )


def _sample_free_queries(data: TrainingData, queries: Sequence[str], chance: random.Random) -> Iterable[str]:
    """Return queries that are used without a tool: only the vectors of a teacher are learned from them."""
    known = set(queries)
    public = [query for some in data.public.values() for example in some for query in example.queries]
    sentences = [
        sentence
        for key, tool in data.tools.items()
        if data.sides.get(key, "train") == "train"
        for sentence in islice(_SENTENCE_END.split(tool.description), 2)
        if MIN_WORDS <= len(sentence.split()) <= MAX_WORDS
    ]
    parts = [_cut_query(chance.choice(queries), chance.choice(queries), chance) for _ in range(PARTS)]
    for texts, count in ((public, MORE_PUBLIC), (sentences, SENTENCES), (parts, PARTS)):
        free = list(dict.fromkeys(text for text in texts if text not in known))
        yield from chance.sample(free, min(count, len(free)))


def _cut_query(query: str, other: str, chance: random.Random) -> str:
    """Return a query without some words, some words of it, or the query and another one."""
    words = query.split()
    drawn = chance.random()
    if drawn < 0.3 or len(words) <= MIN_WORDS:
        return f"{query.rstrip('.')}{chance.choice((' and ', '. ', ', then '))}{other}"
    if drawn < 0.6:
        start = chance.randrange(len(words) - MIN_WORDS)
        return " ".join(words[start : start + chance.randint(MIN_WORDS, 12)])
    return " ".join([word for word in words if chance.random() >= DROPPED_WORDS] or words)


def _choose_tools(data: TrainingData, examples: Sequence[Example], chance: random.Random) -> list[Key]:
    """Return the tools of the examples, and others with a text of their own."""
    asked = {example.tool for example in examples}
    free = [key for key, side in data.sides.items() if side == "train" and key not in asked]
    chosen = asked | {key for key in free if key[0] != DIRECTORY}
    sets = [key for key in data.tools if key not in data.sides and key not in asked]
    for keys, count in (([key for key in free if key[0] == DIRECTORY], DIRECTORY_TOOLS), (sets, SET_TOOLS)):
        chosen.update(chance.sample(keys, min(count, len(keys))))
    found: dict[str, None] = {}
    kept: list[Key] = []
    for key in sorted(chosen):
        text = build_tool_text(data.tools[key])
        if key in asked or text not in found:
            kept.append(key)
        found[text] = None
    return kept

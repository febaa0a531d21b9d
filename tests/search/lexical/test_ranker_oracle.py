"""The lexical ranker beside Tantivy: one field, the same words, the same BM25 to four digits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
import tantivy

from toolcrib.core import text
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.lexical.boolean import LeafMatch, evaluate_query
from toolcrib.search.lexical.fields import FieldConfig, SearchField
from toolcrib.search.lexical.postings import Posting
from toolcrib.search.lexical.ranker import LexicalIndex, LexicalRanker
from toolcrib.search.query.expression import And, Must, Not, Or, PhraseNode, QueryNode, WordNode

K1 = 1.2
B = 0.75
# Tantivy rounds the lengths of longer fields.
MAX_TERMS = 40
# Few words, some of them common: so phrases are held, and terms repeat within a text.
VOCABULARY = [
    "ash",
    "beech",
    "birch",
    "cedar",
    "elm",
    "fir",
    "hazel",
    "larch",
    "maple",
    "oak",
    "pine",
    "rowan",
    "spruce",
    "willow",
    "yew",
]
CATALOGS = 12
QUERIES = 50


def words(written: str) -> list[text.TextWord]:
    return [text.TextWord(term, term, (term,)) for term in re.findall("[a-z]+", written)]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The same texts in both engines."""

    texts: list[str]
    ours: LexicalIndex
    theirs: Any

    def our_scores(self, node: QueryNode) -> dict[int, float]:
        def ask(leaf: WordNode | PhraseNode, field: str) -> LeafMatch | None:
            answer = self.ours.match_leaf(leaf)
            assert answer is not None
            slots, impacts = answer.posting
            return LeafMatch(Posting(slots, impacts * np.float32(K1 + 1)), answer.max_score)

        scored = evaluate_query(node, ask, np.ones(len(self.texts), np.bool_))
        assert scored is not None
        return {
            slot: float(scored.scores[slot]) for slot in np.flatnonzero(scored.matches).tolist()
        }

    def their_scores(self, query: str) -> dict[int, float]:
        searcher = self.theirs.searcher()
        hits = searcher.search(self.theirs.parse_query(query, ["text"]), len(self.texts)).hits
        return {searcher.doc(address)["slot"][0]: score for score, address in hits}


@cache
def pair(seed: int) -> Pair:
    chance = Random(f"catalog {seed}")
    weights = [1 / rank for rank in range(1, len(VOCABULARY) + 1)]
    texts = [
        " ".join(chance.choices(VOCABULARY, weights, k=chance.randint(1, MAX_TERMS)))
        for _ in range(chance.choice((1, 2, 9, 60)))
    ]
    average = sum(len(one.split()) for one in texts) / len(texts)
    reading = FieldConfig(
        fields=(SearchField("text", weight=1.0, b=B, pivot=average),),
        extract_texts=lambda tool: (tool.description,),
        split_words=words,
        is_stop_word=lambda term: False,
    )
    catalog = Catalog(Tool(str(slot), one) for slot, one in enumerate(texts))
    return Pair(
        texts, LexicalRanker(field_config=reading, k1=K1).fit(catalog), _tantivy_index(texts)
    )


def _tantivy_index(texts: list[str]) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("slot", stored=True)
    builder.add_text_field("text")
    index = tantivy.Index(builder.build())
    writer = index.writer(num_threads=1)
    for slot, one in enumerate(texts):
        writer.add_document(tantivy.Document(slot=slot, text=one))
    writer.commit()
    index.reload()
    return index


def leaf(chance: Random, texts: list[str]) -> QueryNode:
    """A word, or a phrase; phrases come from a text, so that some are held."""
    if chance.random() < 0.6:
        return WordNode(chance.choice([*VOCABULARY, "acacia"]))
    there = chance.choice(texts).split()
    begin = chance.randrange(len(there))
    phrase = there[begin : begin + chance.randint(2, 4)]
    if chance.random() < 0.2:
        chance.shuffle(phrase)
    return PhraseNode(" ".join(phrase))


def question(chance: Random, texts: list[str], depth: int = 2) -> QueryNode:
    """A query of any shape. No part stands twice beside itself: Tantivy counts such parts once."""
    if not depth or chance.random() < 0.3:
        return leaf(chance, texts)
    made = [question(chance, texts, depth - 1) for _ in range(chance.randint(2, 4))]
    first, *others = dict.fromkeys(made)
    if not others:
        return first
    if chance.random() < 0.4:
        return And((first, *others))
    # At least the first clause says what to find.
    kinds = [chance.choice((None, None, Must, Not)) for _ in others]
    return Or(
        (first, *(kind(one) if kind else one for kind, one in zip(kinds, others, strict=True)))
    )


def written(node: QueryNode) -> str:
    """A query in Tantivy's grammar."""
    match node:
        case Must():
            return f"+{written(node.inner)}"
        case Not():
            return f"-{written(node.inner)}"
        case And():
            return f"({' AND '.join(map(written, node.nodes))})"
        case Or():
            return f"({' '.join(map(written, node.nodes))})"
    return str(node)


@pytest.mark.parametrize("seed", range(CATALOGS))
def test_words_phrases_and_operators_score_like_tantivy(seed: int) -> None:
    both = pair(seed)
    chance = Random(f"queries {seed}")
    found = 0
    for _ in range(QUERIES):
        node = question(chance, both.texts)
        ours, theirs = both.our_scores(node), both.their_scores(written(node))
        assert ours == pytest.approx(theirs, abs=5e-5, rel=1e-5), written(node)
        found += bool(ours)
    assert found > QUERIES / 4


@pytest.mark.parametrize("seed", range(CATALOGS))
def test_every_single_word_scores_like_tantivy(seed: int) -> None:
    both = pair(seed)
    for word in VOCABULARY:
        theirs = both.their_scores(word)
        assert both.our_scores(WordNode(word)) == pytest.approx(theirs, abs=5e-5, rel=1e-5), word


def test_unmatched_clause_adds_nothing_to_a_score() -> None:
    both = pair(3)
    node = Or((And((WordNode("ash"), WordNode("acacia"))), WordNode("beech")))
    assert both.our_scores(node) == both.our_scores(WordNode("beech")) != {}

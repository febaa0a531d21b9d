"""The lexical ranker has the BM25 scores of Tantivy, to four digits, on texts with one field."""

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
# The vocabulary is small, so that texts contain the phrases and terms repeat within a text.
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


def find_words(source: str) -> list[str]:
    return re.findall("[a-z]+", source)


@dataclass(frozen=True, slots=True, eq=False)
class IndexPair:
    """An index of the same texts in each of the two engines."""

    texts: list[str]
    ours: LexicalIndex
    theirs: Any

    def our_scores(self, node: QueryNode) -> dict[int, float]:
        def match_leaf(leaf: WordNode | PhraseNode, field: str) -> LeafMatch | None:
            match = self.ours.match_leaf(leaf)
            assert match is not None
            slots, impacts = match.posting
            return LeafMatch(Posting(slots, impacts * np.float32(K1 + 1)), match.max_score)

        scored = evaluate_query(node, match_leaf, np.ones(len(self.texts), np.bool_))
        assert scored is not None
        return {slot: float(scored.scores[slot]) for slot in np.flatnonzero(scored.matches).tolist()}

    def their_scores(self, query: str) -> dict[int, float]:
        searcher = self.theirs.searcher()
        hits = searcher.search(self.theirs.parse_query(query, ["text"]), len(self.texts)).hits
        return {searcher.doc(address)["slot"][0]: score for score, address in hits}


@cache
def build_pair(seed: int) -> IndexPair:
    rng = Random(f"catalog {seed}")
    weights = [1 / rank for rank in range(1, len(VOCABULARY) + 1)]
    texts = [
        " ".join(rng.choices(VOCABULARY, weights, k=rng.randint(1, MAX_TERMS)))
        for _ in range(rng.choice((1, 2, 9, 60)))
    ]
    average = sum(len(one.split()) for one in texts) / len(texts)
    field_config = FieldConfig(
        fields=(SearchField("text", weight=1.0, b=B, pivot=average),),
        extract_texts=lambda tool: (tool.description,),
        find_words=find_words,
        analyze_word=lambda term: text.TextWord(term, term, (term,)),
        is_stop_word=lambda term: False,
    )
    catalog = Catalog(Tool(str(slot), one) for slot, one in enumerate(texts))
    return IndexPair(texts, LexicalRanker(field_config=field_config, k1=K1).fit(catalog), _tantivy_index(texts))


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


def make_leaf(rng: Random, texts: list[str]) -> QueryNode:
    """Return a random word or phrase; phrases are taken from a text, so that some match."""
    if rng.random() < 0.6:
        return WordNode(rng.choice([*VOCABULARY, "acacia"]))
    terms = rng.choice(texts).split()
    begin = rng.randrange(len(terms))
    phrase = terms[begin : begin + rng.randint(2, 4)]
    if rng.random() < 0.2:
        rng.shuffle(phrase)
    return PhraseNode(" ".join(phrase))


def make_query(rng: Random, texts: list[str], depth: int = 2) -> QueryNode:
    """Return a random query without repeated clauses, because Tantivy counts those once."""
    if not depth or rng.random() < 0.3:
        return make_leaf(rng, texts)
    nodes = [make_query(rng, texts, depth - 1) for _ in range(rng.randint(2, 4))]
    first, *others = dict.fromkeys(nodes)
    if not others:
        return first
    if rng.random() < 0.4:
        return And((first, *others))
    # The first clause is always positive, so that the query has a term to match.
    kinds = [rng.choice((None, None, Must, Not)) for _ in others]
    return Or((first, *(kind(one) if kind else one for kind, one in zip(kinds, others, strict=True))))


def render_for_tantivy(node: QueryNode) -> str:
    """Return a query in the syntax of Tantivy."""
    match node:
        case Must():
            return f"+{render_for_tantivy(node.inner)}"
        case Not():
            return f"-{render_for_tantivy(node.inner)}"
        case And():
            return f"({' AND '.join(map(render_for_tantivy, node.nodes))})"
        case Or():
            return f"({' '.join(map(render_for_tantivy, node.nodes))})"
    return str(node)


@pytest.mark.parametrize("seed", range(CATALOGS))
def test_words_phrases_and_operators_score_like_tantivy(seed: int) -> None:
    both = build_pair(seed)
    rng = Random(f"queries {seed}")
    matched_queries = 0
    for _ in range(QUERIES):
        node = make_query(rng, both.texts)
        ours, theirs = both.our_scores(node), both.their_scores(render_for_tantivy(node))
        assert ours == pytest.approx(theirs, abs=5e-5, rel=1e-5), render_for_tantivy(node)
        matched_queries += bool(ours)
    assert matched_queries > QUERIES / 4


@pytest.mark.parametrize("seed", range(CATALOGS))
def test_every_single_word_scores_like_tantivy(seed: int) -> None:
    both = build_pair(seed)
    for word in VOCABULARY:
        theirs = both.their_scores(word)
        assert both.our_scores(WordNode(word)) == pytest.approx(theirs, abs=5e-5, rel=1e-5), word


def test_unmatched_clause_adds_nothing_to_a_score() -> None:
    both = build_pair(3)
    node = Or((And((WordNode("ash"), WordNode("acacia"))), WordNode("beech")))
    assert both.our_scores(node) == both.our_scores(WordNode("beech")) != {}

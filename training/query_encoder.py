"""Distil the query encoder: three layers whose vectors of queries match those of the whole encoder.

A tool is encoded once, a query during a search. The vectors of tools stay as they are, so every tool is
a cheap negative.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from training.contrastive import MAX_TOKENS
from training.encoder import Batch, DistillationPlan, Encoder, Layer, distil
from training.static import EncodedTexts
from training.variation import vary_query

PLAN: Final = DistillationPlan("query encoder", steps=1600, warm_up=60, rate=2e-4)
BATCH: Final = 128
# Tools that a query is compared with, besides those of the batch.
OTHERS: Final = 2048
SHARPNESS, TWINS = 20.0, 0.8
# The weights of equal vectors and of finding the right tool, next to that of the same order of tools.
SAMENESS, RIGHT = 4.0, 0.3
# Typing errors and idle text are this many times as frequent as in the training of the whole encoder. The vector
# must be that of the query without them.
NOISE: Final = 4.0


def build_small_encoder(encoder: Encoder, weights: dict[str, Tensor]) -> Encoder:
    """Return an encoder with these layers and the word vectors of a whole encoder."""
    inner = [len(tensor) for name, tensor in weights.items() if name.endswith("widen.weight")]
    small = Encoder(len(encoder.words.weight), 0)
    small.layers = nn.ModuleList(Layer(units) for units in inner)
    small.load_state_dict({**encoder.state_dict(), **weights}, strict=False)
    for name, parameter in small.named_parameters():
        parameter.requires_grad_(name.startswith("layers"))
    return small


def distil_queries(small: Encoder, tokenizer: WordPieceTokenizer, texts: EncodedTexts) -> Encoder:
    """Train a small encoder to give queries the vectors of the whole encoder."""
    chance = random.Random(0)

    def next_batch() -> Batch:
        asked, served = map(list, zip(*chance.sample(texts.pairs, BATCH), strict=True))
        others = chance.sample(range(len(texts.tools)), OTHERS)
        queries = [vary_query(texts.queries[at], chance, NOISE) for at in asked]
        ids = [tokenizer.encode(query, MAX_TOKENS) for query in queries]
        return ids, partial(_compute_loss, texts, asked, [*served, *others])

    distil(small, PLAN, next_batch)
    return small


def _compute_loss(texts: EncodedTexts, asked: Sequence[int], tools: Sequence[int], vectors: Tensor) -> Tensor:
    """Return how far the vectors of queries, and their order of tools, are from those of the whole encoder."""
    meant, bank = texts.query_vectors[asked], texts.tool_vectors[tools]
    scores, wanted = SHARPNESS * vectors @ bank.T, SHARPNESS * meant @ bank.T
    order = functional.kl_div(functional.log_softmax(scores, 1), functional.softmax(wanted, 1), reduction="batchmean")
    right = torch.arange(len(asked))
    twins = bank[: len(asked)] @ bank.T > TWINS
    twins[right, right] = False
    found = functional.cross_entropy(scores.masked_fill(twins, -SHARPNESS), right)
    return SAMENESS * (1 - (vectors * meant).sum(1).mean()) + order + RIGHT * found

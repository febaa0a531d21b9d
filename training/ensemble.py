"""Combine the vectors of two encoders, and distil them into one tool encoder.

Two encoders that were trained differently make different errors, so their combination finds more than either alone.
The combined vectors have 768 numbers; a projection to the 384 strongest directions ranks as well.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from training.contrastive import MAX_TOOL_TOKENS
from training.encoder import WIDTH, Batch, DistillationPlan, Encoder, distil
from training.static import EncodedTexts

# The share of the first encoder in the similarity of two texts.
SHARE: Final = 0.6
PLAN: Final = DistillationPlan("tool encoder", steps=450, warm_up=40, rate=7e-5)
BATCH: Final = 96
# Queries that a tool is compared with.
QUERIES: Final = 2048
SHARPNESS: Final = 20.0
# The weight of equal vectors, next to that of the same order of queries.
SAMENESS: Final = 4.0


def combine_vectors(first: EncodedTexts, second: EncodedTexts) -> EncodedTexts:
    """Return the texts with the combined vectors of two encoders, in the space of the second."""
    tools = _join(first.tool_vectors, second.tool_vectors)
    queries = _join(first.query_vectors, second.query_vectors)
    both = torch.cat((tools, queries))
    directions = torch.linalg.svd(both.T @ both).U[:, :WIDTH]
    # The rotation that is nearest to the second encoder, so that an encoder that starts with its weights learns fast.
    own = torch.cat((second.tool_vectors, second.query_vectors))
    rotation = torch.linalg.svd((both @ directions).T @ own)
    projection = directions @ rotation.U @ rotation.Vh
    return EncodedTexts(
        second.tools,
        functional.normalize(tools @ projection, dim=1),
        second.queries,
        functional.normalize(queries @ projection, dim=1),
        second.pairs,
    )


def distil_tools(encoder: Encoder, tokenizer: WordPieceTokenizer, texts: EncodedTexts) -> Encoder:
    """Train an encoder to give tools these vectors. Its word vectors stay, as queries use them too."""
    chance = random.Random(1)
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name.startswith("layers"))

    def next_batch() -> Batch:
        chosen = chance.sample(range(len(texts.tools)), BATCH)
        queries = texts.query_vectors[chance.sample(range(len(texts.queries)), QUERIES)]
        ids = [tokenizer.encode(texts.tools[at], MAX_TOOL_TOKENS) for at in chosen]
        return ids, partial(_compute_loss, texts.tool_vectors[chosen], queries)

    distil(encoder, PLAN, next_batch)
    return encoder


def _join(first: Tensor, second: Tensor) -> Tensor:
    """Return vectors whose product is the weighted mean of the products of both."""
    return torch.cat((SHARE**0.5 * first, (1 - SHARE) ** 0.5 * second), 1)


def _compute_loss(wanted: Tensor, queries: Tensor, vectors: Tensor) -> Tensor:
    """Return how far the vectors of tools, and their order of queries, are from the combined ones."""
    order = functional.kl_div(
        functional.log_softmax(SHARPNESS * vectors @ queries.T, 1),
        functional.softmax(SHARPNESS * wanted @ queries.T, 1),
        reduction="batchmean",
    )
    return SAMENESS * (1 - (vectors * wanted).sum(1).mean()) + order

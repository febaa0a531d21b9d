"""Distil the vectors of two teachers into the shipped encoder.

Teachers that were trained differently make different errors, so their combination finds more than either alone. The
combined vectors are projected to the width of the encoder, which ranks as well.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS
from training.encoder import WIDTH, Encoder, ParallelEncoder, cosine_schedule
from training.texts import TextVectors, TrainingTexts
from training.variation import vary_query

# The share of the first teacher in the similarity of two texts.
SHARE: Final = 0.35
STEPS, WARM_UP, RATE = 1500, 80, 2.5e-4
TOOLS, QUERIES = 80, 176
# The queries without a tool in a batch.
FREE_QUERIES: Final = 112
# The queries that a tool is compared with, and the tools that a query is compared with.
OTHER_QUERIES, OTHER_TOOLS = 2048, 3072
SHARPNESS, TWINS = 20.0, 0.8
# The weights of equal vectors and of finding the right tool, next to that of the same order.
SAMENESS, RIGHT = 4.0, 0.3
# Typing errors and idle text are this many times as frequent as in the training of the teacher. The vector must be
# that of the query without them.
NOISE: Final = 3.0
MAX_AVERAGE: Final = 0.995


def combine_vectors(
    first: TextVectors, second: TextVectors, texts: TrainingTexts, start: ParallelEncoder
) -> TextVectors:
    """Return the combined vectors of two teachers.

    They are rotated to be near the vectors of the encoder that the distillation starts with, so that it learns fast.
    """
    tools, queries = _join(first.tools, second.tools), _join(first.queries, second.queries)
    both = torch.cat((tools, queries))
    directions = torch.linalg.svd(both.T @ both).U[:, :WIDTH]
    sample = slice(None, None, 4)
    own = torch.cat((start.encode(texts.tool_ids[sample]), start.encode(texts.query_ids[sample])))
    rotation = torch.linalg.svd((torch.cat((tools[sample], queries[sample])) @ directions).T @ own)
    projection = directions @ rotation.U @ rotation.Vh
    return TextVectors(*(functional.normalize(part @ projection, dim=1) for part in (tools, queries)))


def distil_encoder(
    encoder: Encoder, tokenizer: WordPieceTokenizer, texts: TrainingTexts, wanted: TextVectors
) -> dict[str, Tensor]:
    """Train an encoder to give tools and queries these vectors, and return the mean of its last weights.

    Its word vectors stay: words that no text has keep their place among the others.
    """
    chance = random.Random(1)
    encoder.requires_grad_(False)
    encoder.layers.requires_grad_(True)
    learned = list(encoder.layers.parameters())
    parallel = ParallelEncoder(encoder)
    optimizer = torch.optim.AdamW(learned, lr=RATE, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: cosine_schedule(step, STEPS, WARM_UP))
    mean = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    for step in range(1, STEPS + 1):
        tools, asked = chance.sample(range(len(texts.tools)), TOOLS), chance.sample(texts.pairs, QUERIES)
        queries, served = map(list, zip(*asked, strict=True))
        queries += chance.sample(range(len(texts.pairs), len(texts.queries)), FREE_QUERIES)
        ids = [texts.tool_ids[at] for at in tools]
        ids += [tokenizer.encode(vary_query(texts.queries[at], chance, NOISE), MAX_TOKENS) for at in queries]
        served += chance.sample(range(len(texts.tools)), OTHER_TOOLS)
        bank = TextVectors(
            wanted.tools[served], wanted.queries[chance.sample(range(len(texts.queries)), OTHER_QUERIES)]
        )
        target = TextVectors(wanted.tools[tools], wanted.queries[queries])
        value = parallel.learn(ids, partial(_compute_loss, target, bank))
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        for name, tensor in encoder.state_dict().items():
            mean[name].lerp_(tensor, 1 - min(MAX_AVERAGE, step / (step + 20)))
        if step % 50 == 0:
            print(f"encoder, step {step}: loss {value:.3f}", flush=True)
    return mean


def _compute_loss(target: TextVectors, bank: TextVectors, vectors: Tensor) -> Tensor:
    """Return how far the vectors, and the order of a bank of others by them, are from those of the teachers.

    The bank begins with the right tool of each query that has one; these queries come first.
    """
    tools, queries = vectors[: len(target.tools)], vectors[len(target.tools) :]
    loss = SAMENESS * (2 - (tools * target.tools).sum(1).mean() - (queries * target.queries).sum(1).mean())
    loss = (
        loss + _compare_order(tools, target.tools, bank.queries) + _compare_order(queries, target.queries, bank.tools)
    )
    right = torch.arange(QUERIES)
    twins = bank.tools[:QUERIES] @ bank.tools.T > TWINS
    twins[right, right] = False
    scores = (SHARPNESS * queries[:QUERIES] @ bank.tools.T).masked_fill(twins, -SHARPNESS)
    return loss + RIGHT * functional.cross_entropy(scores, right)


def _compare_order(vectors: Tensor, wanted: Tensor, bank: Tensor) -> Tensor:
    """Return how much two sets of vectors differ in how they order a bank of others."""
    return functional.kl_div(
        functional.log_softmax(SHARPNESS * vectors @ bank.T, 1),
        functional.softmax(SHARPNESS * wanted @ bank.T, 1),
        reduction="batchmean",
    )


def _join(first: Tensor, second: Tensor) -> Tensor:
    """Return vectors whose product is the weighted mean of the products of both."""
    return torch.cat((SHARE**0.5 * first, (1 - SHARE) ** 0.5 * second), 1)

"""Train the encoder of queries: half of the layers, which say of queries what the whole encoder says.

Tools are read once, queries all the time. So queries get an encoder of their own, half as deep. It
learns from the whole one: to give every query nearly the same vector, and above all to put tools in the
same order. The tools' vectors stay as they are, which makes every tool a cheap counter-example.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from training.asked import Asked
from training.encoder import Encoder
from training.shallow import SHARPNESS, learn, misjudged, unlike

# The layers it begins with: those that, left alone, come nearest to all six.
KEPT: Final = (0, 4, 5)
STEPS, RATE = 2400, 3e-4
# Of a batch, how many queries each source gives: hand-written ones most.
BATCH: Final = {
    "hand": 80,
    "metatool": 12,
    "ultratool": 8,
    "sealtools": 5,
    "toollens": 6,
    "apibench": 2,
    "bfcl": 2,
    "own words": 13,
}
# Tools that a query is compared with, beside those that the batch asks for.
OTHERS: Final = 2048
TWINS: Final = 0.8
# What it counts to give the same vector, and to put the tool that was asked for first.
SAMENESS, RIGHT = 4.0, 0.3


def train(encoder: Encoder, asked: Asked, after_200: Callable[[int], None]) -> None:
    """Train an encoder of queries."""
    chance = random.Random(1)

    def loss() -> Tensor:
        batch = [one for name, n in BATCH.items() for one in chance.sample(asked.lessons[name], n)]
        queries, wanted = (list(part) for part in zip(*batch, strict=True))
        return _loss(encoder([asked.queries[at] for at in queries]), queries, wanted, asked)

    learn(encoder, STEPS, RATE, loss, after_200)


def _loss(said: Tensor, queries: list[int], tools: list[int], asked: Asked) -> Tensor:
    taught = asked.query_vectors[queries]
    others = torch.randint(len(asked.tool_vectors), (OTHERS,))
    bank = torch.cat((asked.tool_vectors[tools], asked.tool_vectors[others]))
    scores = said @ bank.T
    right = torch.arange(len(queries))
    twins = asked.tool_vectors[tools] @ bank.T > TWINS
    twins[right, right] = False
    first = functional.cross_entropy(SHARPNESS * scores.masked_fill(twins, -1.0), right)
    return SAMENESS * unlike(said, taught) + misjudged(scores, taught @ bank.T) + RIGHT * first

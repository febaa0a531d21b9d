"""Train the encoder of tools: one layer less, which says of tools what the whole encoder says.

It learns to give every tool nearly the same vector, to put the queries in the same order, and to come in
the same order for each query. The vectors of queries are those of the encoder that reads them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from training.asked import Asked
from training.encoder import Encoder
from training.shallow import learn, misjudged, unlike

# The layers it begins with: those that, left alone, come nearest to all six.
KEPT: Final = (0, 1, 3, 4, 5)
STEPS, RATE = 1200, 2e-4
BATCH: Final = 64
# Batches are cut out of so many at once, so that tools of like length are read together.
CUT_TOGETHER: Final = 8
# What a tool is compared with, beside a query that asks for it: hand-written queries, any queries,
# tools.
HAND, ANY, TOOLS = 1536, 512, 1024
SAMENESS: Final = 6.0


def train(encoder: Encoder, asked: Asked, queries: Tensor, after_200: Callable[[int], None]) -> None:
    """Train an encoder of tools for queries that have these vectors."""
    chance = random.Random(1)
    asking: dict[int, list[int]] = {}
    for pairs in asked.lessons.values():
        for query, tool in pairs:
            asking.setdefault(tool, []).append(query)
    hand, anyone = (
        torch.tensor(sorted({query for pairs in some for query, _ in pairs}))
        for some in ([asked.lessons["hand"]], asked.lessons.values())
    )
    everyone = anyone.tolist()
    batches = _batches(asked, chance)

    def loss() -> Tensor:
        tools = next(batches)
        said, taught = encoder([asked.tools[at] for at in tools]), asked.tool_vectors[tools]
        own = queries[[chance.choice(asking.get(at, everyone)) for at in tools]]
        bank = torch.cat(
            (
                own,
                queries[hand[torch.randint(len(hand), (HAND,))]],
                queries[anyone[torch.randint(len(anyone), (ANY,))]],
                asked.tool_vectors[torch.randint(len(asked.tools), (TOOLS,))],
            )
        )
        return (
            SAMENESS * unlike(said, taught)
            + misjudged(said @ bank.T, taught @ bank.T)
            + misjudged(own @ said.T, own @ taught.T)
        )

    learn(encoder, STEPS, RATE, loss, after_200)


def _batches(asked: Asked, chance: random.Random) -> Iterator[list[int]]:
    """All tools but those held back, over and over, those of like length together."""
    held = set(asked.held_back)
    learnt = [at for at in range(len(asked.tools)) if at not in held]
    many = CUT_TOGETHER * BATCH
    while True:
        order = chance.sample(learnt, len(learnt))
        for start in range(0, len(order) - many + 1, many):
            some = sorted(order[start : start + many], key=lambda at: len(asked.tools[at]))
            parts = [some[first : first + BATCH] for first in range(0, many, BATCH)]
            yield from chance.sample(parts, len(parts))

"""Train the encoder of queries: half of the layers, which say of queries what the whole encoder says.

Tools are read once, queries all the time. So queries get an encoder of their own, half as deep. It
learns from the whole one: to give every query nearly the same vector, and above all to put tools in the
same order. It does so twice: with all it has, and for tools as the whole encoder reads them; then with a
last layer of fewer inner units, and for tools as the encoder of tools reads them. The tools' vectors stay
as they are, which makes every tool a cheap counter-example.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.asked import Asked
from training.encoder import Encoder
from training.shallow import SHARPNESS, learn, misjudged, unlike

# The layers it begins with: those that, left alone, come nearest to all six.
KEPT: Final = (0, 4, 5)


class Lesson(NamedTuple):
    """What is told of a lesson: what seeds its chance, its steps, and how large they are."""

    seed: int
    steps: int
    rate: float


FIRST, SECOND = Lesson(1, 2400, 3e-4), Lesson(2, 1200, 2e-4)
# Inner units of the last layer: what it makes of each token goes into a mean, for which fewer do. And
# the batches that show which count.
LAST, SHOWN = 512, 6
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


@torch.no_grad()
def narrow(encoder: Encoder, asked: Asked) -> None:
    """Let those inner units of the last layer go that count least."""
    last = encoder.layers[-1]
    seen: list[Tensor] = []
    hook = last.narrow.register_forward_pre_hook(lambda _, given: seen.append(given[0].square().flatten(0, -2).sum(0)))
    chance = random.Random(SECOND.seed)
    for _ in range(SHOWN):
        encoder([asked.queries[query] for query, _ in _batch(asked, chance)])
    hook.remove()
    worth = torch.stack(seen).sum(0).sqrt() * last.narrow.weight.norm(dim=0)
    kept = worth.topk(LAST).indices.sort().values
    for part, rows in ((last.widen, (kept,)), (last.narrow, (slice(None), kept))):
        part.weight = nn.Parameter(part.weight[rows].clone())
    last.widen.bias = nn.Parameter(last.widen.bias[kept].clone())


def train(encoder: Encoder, asked: Asked, tools: Tensor, lesson: Lesson, after_200: Callable[[int], None]) -> None:
    """Train an encoder of queries for tools that have these vectors."""
    chance = random.Random(lesson.seed)

    def loss() -> Tensor:
        queries, wanted = (list(part) for part in zip(*_batch(asked, chance), strict=True))
        others = torch.randint(len(tools), (OTHERS,)).tolist()
        said = encoder([asked.queries[at] for at in queries])
        scores = said @ tools[wanted + others].T
        taught, bank = asked.query_vectors[queries], asked.tool_vectors[wanted + others]
        right = torch.arange(len(queries))
        twins = asked.tool_vectors[wanted] @ bank.T > TWINS
        twins[right, right] = False
        first = functional.cross_entropy(SHARPNESS * scores.masked_fill(twins, -1.0), right)
        return SAMENESS * unlike(said, taught) + misjudged(scores, taught @ bank.T) + RIGHT * first

    learn(encoder, lesson.steps, lesson.rate, loss, after_200)


def _batch(asked: Asked, chance: random.Random) -> list[tuple[int, int]]:
    """Some queries of each source, and the tools they ask for."""
    return [one for name, n in BATCH.items() for one in chance.sample(asked.lessons[name], n)]

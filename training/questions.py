"""Train the encoder of queries: half of the layers, which say of queries what the whole encoder says.

Tools are read once, queries all the time. So queries get an encoder of their own, half as deep. It
learns from the whole one: to give every query nearly the same vector, and above all to put tools in the
same order. The tools' vectors stay as they are, which makes every tool a cheap counter-example.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.model.wordpiece import WordPiece
from training.contextual import MAX_TOKENS
from training.data import STYLES
from training.encoder import Encoder, cosine_schedule

# The layers it begins with: those that, left alone, come nearest to all six.
KEPT: Final = (0, 4, 5)
STEPS: Final = 2400
RATE: Final = 3e-4
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
SHARPNESS, TWINS = 20.0, 0.8
# What it counts to give the same vector, and to put the tool that was asked for first.
SAMENESS, RIGHT = 4.0, 0.3


@dataclass(frozen=True, slots=True)
class Asked:
    """Queries and tools, what the whole encoder says of them, and who asks for what, by source."""

    queries: list[str]
    query_vectors: Tensor
    tool_vectors: Tensor
    # Places of a query and of the tool it asks for.
    lessons: dict[str, list[tuple[int, int]]]
    # The same for each style of the queries that are held back.
    witness: dict[str, list[tuple[int, int]]]


def train(pieces: WordPiece, encoder: Encoder, asked: Asked, out: Path) -> Encoder:
    """An encoder of queries; how the witness fares on the way goes to a file of the folder."""
    torch.manual_seed(0)
    chance = random.Random(1)
    small = copy.deepcopy(encoder)
    small.layers = nn.ModuleList(copy.deepcopy(encoder.layers[at]) for at in KEPT)
    for name, parameter in small.named_parameters():
        # Word pieces are shared with the whole encoder.
        parameter.requires_grad_(name.startswith("layers"))
    ids = [pieces.ids(text, MAX_TOKENS) for text in asked.queries]
    optimizer = torch.optim.AdamW(
        [one for one in small.parameters() if one.requires_grad], lr=RATE, weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: cosine_schedule(step, STEPS, STEPS // 20)
    )
    for step in range(STEPS):
        batch = [
            one
            for name, count in BATCH.items()
            for one in chance.sample(asked.lessons[name], count)
        ]
        queries, tools = (list(part) for part in zip(*batch, strict=True))
        loss = _loss(small([ids[at] for at in queries]), queries, tools, asked)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(small.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 199:
            _report(small, ids, asked, step + 1, out / "curve.jsonl")
            torch.save(small.state_dict(), out / "questions.pt")
    return small


def _loss(said: Tensor, queries: Sequence[int], tools: Sequence[int], asked: Asked) -> Tensor:
    taught = asked.query_vectors[queries]
    others = torch.randint(len(asked.tool_vectors), (OTHERS,))
    bank = torch.cat((asked.tool_vectors[tools], asked.tool_vectors[others]))
    scores, wanted = SHARPNESS * said @ bank.T, SHARPNESS * taught @ bank.T
    order = functional.kl_div(
        functional.log_softmax(scores, 1), functional.softmax(wanted, 1), reduction="batchmean"
    )
    right = torch.arange(len(queries))
    twins = asked.tool_vectors[tools] @ bank.T > TWINS
    twins[right, right] = False
    first = functional.cross_entropy(scores.masked_fill(twins, -SHARPNESS), right)
    return SAMENESS * (1 - (said * taught).sum(1).mean()) + order + RIGHT * first


@torch.no_grad()
def _report(small: Encoder, ids: list[list[int]], asked: Asked, step: int, file: Path) -> None:
    """How often the tool is among the first five of those held back: for both encoders."""
    figures: dict[str, float] = {"step": step}
    held = sorted({tool for some in asked.witness.values() for _, tool in some})
    place = {tool: at for at, tool in enumerate(held)}
    for style in STYLES:
        queries, tools = zip(*asked.witness[style], strict=True)
        right = torch.tensor([place[tool] for tool in tools])[:, None]
        both = small([ids[at] for at in queries]), asked.query_vectors[list(queries)]
        for name, vectors in zip(("half", "whole"), both, strict=True):
            scores = vectors @ asked.tool_vectors[held].T
            above = (scores > scores.gather(1, right)).sum(1)
            figures[f"{style}, {name}, in 5"] = round(float((above < 5).float().mean()), 4)
    print(json.dumps(figures), flush=True)
    with file.open("a") as curve:
        curve.write(json.dumps(figures) + "\n")

"""What tells names of services from those of people, places and all else: a probe into the encoder.

A query that asks for a service nobody offers has no answer, however near another service's tool is.
The queries of the lessons teach what such names look like in their sentences: a name that is part of
what the tool's server is called is a service, one that never is, is not.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from toolcrib.core.tool import Tool
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import halfway_layer
from toolcrib.search.query.segments import find_names
from training.contextual import MAX_TOKENS
from training.data import Data, Lesson
from training.encoder import Encoder
from training.export import Arrays

# A name that is a service's this often is one; one that sometimes is, teaches nothing.
MOSTLY = 0.5
# So often a name is shown: a few are in hundreds of queries.
MOST_SHOWN = 6
# Against learning the names by heart, a part of the number of examples; and steps of Newton's method.
RIDGE = 0.1
STEPS = 12


class Example(NamedTuple):
    """A name in its sentence."""

    query: str
    name: str
    is_service: bool


def examples(lessons: Sequence[Lesson], data: Data) -> list[Example]:
    """The names in the queries of lessons that are clearly a service's, or clearly not."""
    found: list[Example] = []
    for lesson in lessons:
        called = _called(data.tools[lesson.tool])
        for query in lesson.queries:
            found += [Example(query, name, _is_part(name, called)) for name in find_names(query)]
    count = Counter(one.name for one in found)
    served = Counter(one.name for one in found if one.is_service)
    share = {name: served[name] / count[name] for name in count}
    random.Random(0).shuffle(found)
    shown: Counter[str] = Counter()
    chosen: list[Example] = []
    for one in found:
        if shown[one.name] < MOST_SHOWN and not 0 < share[one.name] < MOSTLY:
            shown[one.name] += 1
            chosen.append(one._replace(is_service=share[one.name] >= MOSTLY))
    return chosen


def fit(data: Data, pieces: WordPieceTokenizer, encoder: Encoder) -> Arrays:
    """The probe, as `toolcrib.encoder.transformer.Probe` reads it, tried on names that it was not shown."""
    shown = examples([*data.pairs, *data.own], data)
    known = {one.name.lower() for one in shown}
    unseen = [one for one in examples(data.witness, data) if one.name.lower() not in known]
    x, y = _states(shown, pieces, encoder), np.array([one.is_service for one in shown])
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-6
    weight, bias = _logistic((x - mean) / spread, y)
    weight = weight / spread
    bias = bias - float(mean @ weight)
    said = _states(unseen, pieces, encoder) @ weight + bias
    truth = np.array([one.is_service for one in unseen])
    above = (said[truth][:, None] > said[~truth][None]).mean()
    print(f"{len(shown):,} names shown; of {len(unseen):,} others {above:.3f} in order", flush=True)
    return {"weight": weight.astype(np.float32), "bias": np.array(bias, np.float32)}


def _called(tool: Tool) -> set[str]:
    """The words of what a tool and its server are called."""
    head, _, _ = tool.id.partition("::")
    said = f"{tool.server} {head} {tool.name}"
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", said)
    return set(re.findall(r"[a-z0-9]{2,}", f"{said} {parted}".lower()))


def _is_part(name: str, called: set[str]) -> bool:
    lower = name.lower().rstrip(".")
    return not called.isdisjoint({lower, lower.replace("-", ""), *re.split(r"[-.]", lower)})


@torch.no_grad()
def _states(shown: Sequence[Example], pieces: WordPieceTokenizer, encoder: Encoder) -> NDArray[np.float64]:
    """What each name means in its sentence after half of the layers: the mean of its pieces."""
    states = np.zeros((len(shown), encoder.places.weight.shape[1]))
    for at, one in enumerate(shown):
        ids = pieces.encode(one.query, MAX_TOKENS)
        x = encoder.norm(encoder.words(torch.tensor([ids])) + encoder.places.weight[: len(ids)])
        for layer in encoder.layers[: halfway_layer(len(encoder.layers))]:
            x = layer(x, None)
        place = pieces.find_token_span(one.query, one.name, MAX_TOKENS)
        if place.stop > place.start:
            states[at] = x[0, place].mean(dim=0).numpy()
    return states


def _logistic(x: NDArray[np.float64], y: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Weights and bias that tell `y` from `x`, by Newton's method."""
    wide = np.c_[x, np.ones(len(x))]
    ridge = RIDGE * len(x) * np.eye(wide.shape[1])
    ridge[-1, -1] = 0
    weights = np.zeros(wide.shape[1])
    for _ in range(STEPS):
        likely = 1 / (1 + np.exp(-wide @ weights))
        curve = (wide * (likely * (1 - likely) + 1e-6)[:, None]).T @ wide + ridge
        weights -= np.linalg.solve(curve, wide.T @ (likely - y) + ridge @ weights)
    return weights[:-1], float(weights[-1])

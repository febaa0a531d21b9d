"""Fit the probe that decides whether a word of a query names a service.

A query that names a service which no tool belongs to has no answer, however similar the tools of
another service are. The training queries show such names in their sentences: a name that is part of
the name of the tool's server is a service, and a name that never is one is not.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.tool import Tool
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS, halfway_layer
from toolcrib.search.query.segments import find_names
from training.data import Example, TrainingData
from training.encoder import Encoder
from training.export import Arrays

# A name that is part of the server's name in this share of its queries is a service.
MIN_SERVICE_SHARE: Final = 0.5
# A few names are in hundreds of queries.
MAX_PER_NAME: Final = 6
# The regularisation, as a share of the number of examples, and the steps of Newton's method.
RIDGE: Final = 0.1
STEPS: Final = 12
BATCH: Final = 64


class NameExample(NamedTuple):
    """A name in a query."""

    query: str
    name: str
    is_service: bool


def fit_probe(data: TrainingData, tokenizer: WordPieceTokenizer, encoder: Encoder) -> Arrays:
    """Return the weights of `toolcrib.encoder.transformer.ServiceNameProbe`. Print its AUC on unseen servers."""
    shown = find_name_examples(data.written["train"], data)
    known = {one.name.lower() for one in shown}
    held_back = [*data.written["dev"], *data.written["test"]]
    unseen = [one for one in find_name_examples(held_back, data) if one.name.lower() not in known]
    x, y = _encode_names(shown, tokenizer, encoder), np.array([one.is_service for one in shown])
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-6
    weight, bias = _fit_logistic((x - mean) / spread, y)
    weight = weight / spread
    bias = bias - float(mean @ weight)
    logits = _encode_names(unseen, tokenizer, encoder) @ weight + bias
    truth = np.array([one.is_service for one in unseen])
    area = (logits[truth][:, None] > logits[~truth][None]).mean()
    print(f"service probe: {len(shown):,} names, AUC {area:.3f} for {len(unseen):,} unseen names", flush=True)
    return {"weight": weight.astype(np.float32), "bias": np.array(bias, np.float32)}


def find_name_examples(examples: Sequence[Example], data: TrainingData) -> list[NameExample]:
    """Return the names in queries that are clearly services, or clearly not."""
    found: list[NameExample] = []
    for example in examples:
        words = _server_words(data.tools[example.tool])
        for query in example.queries:
            found += [NameExample(query, name, _is_part(name, words)) for name in find_names(query)]
    count = Counter(one.name for one in found)
    services = Counter(one.name for one in found if one.is_service)
    share = {name: services[name] / count[name] for name in count}
    random.Random(0).shuffle(found)
    used: Counter[str] = Counter()
    chosen: list[NameExample] = []
    for one in found:
        if used[one.name] < MAX_PER_NAME and not 0 < share[one.name] < MIN_SERVICE_SHARE:
            used[one.name] += 1
            chosen.append(one._replace(is_service=share[one.name] >= MIN_SERVICE_SHARE))
    return chosen


def _server_words(tool: Tool) -> set[str]:
    """Return the words in the names of a tool and its server."""
    head, _, _ = tool.id.partition("::")
    names = f"{tool.server} {head} {tool.name}"
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", names)
    return set(re.findall(r"[a-z0-9]{2,}", f"{names} {split}".lower()))


def _is_part(name: str, words: set[str]) -> bool:
    lower = name.lower().rstrip(".")
    return not words.isdisjoint({lower, lower.replace("-", ""), *re.split(r"[-.]", lower)})


def _encode_names(
    examples: Sequence[NameExample], tokenizer: WordPieceTokenizer, encoder: Encoder
) -> NDArray[np.float64]:
    """Return, for each name, the mean of its token vectors after half of the layers."""
    states = np.zeros((len(examples), encoder.places.weight.shape[1]))
    order = sorted(range(len(examples)), key=lambda at: len(examples[at].query))
    for begin in range(0, len(order), BATCH):
        rows = order[begin : begin + BATCH]
        texts = [tokenizer.encode(examples[at].query, MAX_TOKENS) for at in rows]
        tokens = encoder.encode_tokens(texts, halfway_layer(len(encoder.layers)))
        for row, at in enumerate(rows):
            span = tokenizer.find_token_span(examples[at].query, examples[at].name, MAX_TOKENS)
            if span.stop > span.start:
                states[at] = tokens[row, span].mean(dim=0).numpy()
    return states


def _fit_logistic(x: NDArray[np.float64], y: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Return weights and bias of a logistic regression, by Newton's method."""
    wide = np.c_[x, np.ones(len(x))]
    ridge = RIDGE * len(x) * np.eye(wide.shape[1])
    ridge[-1, -1] = 0
    weights = np.zeros(wide.shape[1])
    for _ in range(STEPS):
        likely = 1 / (1 + np.exp(-wide @ weights))
        curve = (wide * (likely * (1 - likely) + 1e-6)[:, None]).T @ wide + ridge
        weights -= np.linalg.solve(curve, wide.T @ (likely - y) + ridge @ weights)
    return weights[:-1], float(weights[-1])

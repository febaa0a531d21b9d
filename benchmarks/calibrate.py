"""Fit the weights of the confidence to requests for tools of unseen servers.

python -m benchmarks.calibrate [--data DIR] [--vectors FILE] [--mode MODE] [--write]

Catalogs of 20 to 5,744 tools are drawn from two collections of real servers. A logistic regression
separates the requests that a tool of the catalog serves from those that none serves; all catalog sizes
count alike. Only half of the unseen servers are used: `benchmarks.confidence` measures on the other half.
The threshold refuses 2 % of the answerable requests. `--write` replaces the weights in
`search/hybrid/calibration.py`. The result depends on the data and the encoder alone, so run it again when
the encoder changes.
"""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.context import data_folder
from benchmarks.held_back import RequestSource
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.runner import build_rankers
from toolcrib.search.hybrid import calibration
from toolcrib.search.hybrid.calibration import Calibration
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.query.parser import parse_query
from toolcrib.search.results import CONFIDENCE_SLOPE
from training.data import read_data

COLLECTIONS: Final = ("mcp_catalog", "catalog_toucan")
# How many catalogs of each size are drawn, and how many requests of each kind for one of them.
SIZES: Final = {20: (6, 30), 60: (4, 40), 200: (3, 60), 1_000: (1, 150)}
PARTS: Final = 2
MAX_REQUESTS: Final = 100
# A tool of another server with a higher similarity may serve the request too.
MAX_SIMILARITY: Final = 0.65
WRONGLY_REFUSED: Final = 0.02
PAGE: Final = 5
SIGNALS: Final = tuple(field.name for field in fields(Calibration) if field.name != "threshold")
# These signals are rare, and rarer still in these requests. Relative to the similarity, they keep the weights
# that were chosen with the requests to the demo catalog.
FIXED: Final = {"missing_service": 0.2, "unknown_words": 0.3}
FITTED: Final = tuple(name for name in SIGNALS if name not in FIXED)
NAMES: Final = {"hybrid": "ENCODER_CALIBRATION", "fast": "STATIC_CALIBRATION"}
# How strongly weights are drawn to zero, and for how many rounds the best hits are chosen again.
RIDGE: Final = 1e-3
ROUNDS: Final = 10

Matrix = NDArray[np.float64]


class Sample(NamedTuple):
    """The signals of each hit on the first page, for one request: a row for each hit and segment."""

    group: int
    is_answerable: bool
    signals: Matrix


def draw_samples(data: Path, vectors: Path | None, mode: str) -> Iterator[Sample]:
    """Yield the signals of all requests."""
    embedder = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors, capacity=20_000)
    ranker = build_rankers(embedder)[mode]
    assert isinstance(ranker, HybridRanker)
    chance = random.Random(1)
    training = read_data(data)
    for collection in COLLECTIONS:
        source = RequestSource(training, collection, embedder, "fit")
        catalogs = [(size, *plan) for size, plan in SIZES.items()]
        drawn = [
            (size, count, source.draw_catalog(size, chance)) for size, times, count in catalogs for _ in range(times)
        ]
        drawn += [(0, MAX_REQUESTS, source.remove_servers(part, PARTS)) for part in range(PARTS)]
        for size, count, tools in drawn:
            requests = source.draw_requests(tools, chance, count=count, max_similarity=MAX_SIMILARITY)
            yield from measure(ranker, tools, size, requests)


def measure(
    ranker: HybridRanker, tools: list[Tool], group: int, requests: Iterator[tuple[str, bool]]
) -> Iterator[Sample]:
    """Yield the signals of requests to one catalog.

    The fits are linear in the weights, so a ranker with one weight of 1 returns the signal of that weight.
    """
    catalog = Catalog(tools)
    index = ranker.fit(catalog)
    index.warm_up(len(tools))
    zero = Calibration(**dict.fromkeys((*SIGNALS, "threshold"), 0.0))
    units = [replace(index, ranker=replace(ranker, calibration=replace(zero, **{name: 1.0}))) for name in SIGNALS]
    for text, is_answerable in requests:
        query = parse_query(text, ranker.syntax)
        rankings = [unit.rank(query) for unit in units]
        best = [slot for slot, _ in rankings[0].top(PAGE)]
        if best and rankings[0].fits is not None:
            signals = [ranking.fits_of(best).ravel() for ranking in rankings]
            yield Sample(group, is_answerable, np.array(signals, np.float64).T)


def fit_weights(samples: list[Sample]) -> Calibration:
    """Return the weights that separate answerable and impossible requests best.

    The confidence of a result is that of its best hit. Which one that is depends on the weights, so it
    is chosen again after each fit, the most similar one first.
    """
    answers = np.array([sample.is_answerable for sample in samples], np.float64)
    importance = _balance(samples)
    merge = np.array([[float(name == kept) for kept in FITTED] for name in SIGNALS])
    merge[[SIGNALS.index(name) for name in FIXED], 0] = list(FIXED.values())
    rows = [sample.signals @ merge for sample in samples]
    chosen = np.stack([some[some[:, 0].argmax()] for some in rows])
    weights = np.zeros(len(FITTED) + 1)
    for _ in range(ROUNDS):
        weights = fit_logistic(chosen, answers, importance)
        chosen = np.stack([some[(some @ weights[:-1]).argmax()] for some in rows])
    scores = chosen @ weights[:-1] / CONFIDENCE_SLOPE
    threshold = _weighted_quantile(scores[answers == 1], importance[answers == 1], WRONGLY_REFUSED)
    scaled = (merge @ weights[:-1] / CONFIDENCE_SLOPE).tolist()
    fitted = {name: round(weight, 4) for name, weight in zip(SIGNALS, scaled, strict=True)}
    # Rounded up, so that a tie is a refusal.
    return Calibration(threshold=math.ceil(100 * threshold) / 100, **fitted)


def fit_logistic(rows: Matrix, answers: Matrix, importance: Matrix) -> Matrix:
    """Return the weights of a logistic regression, the bias last, by Newton's method."""
    means, scales = rows.mean(axis=0), rows.std(axis=0)
    scales[scales == 0] = 1
    design = np.column_stack([(rows - means) / scales, np.ones(len(rows))])
    weights = np.zeros(design.shape[1])
    for _ in range(50):
        predicted = 1 / (1 + np.exp(-design @ weights))
        curvature = importance * predicted * (1 - predicted)
        hessian = (design * curvature[:, None]).T @ design + RIDGE * len(rows) * np.eye(len(weights))
        step = np.linalg.solve(hessian, design.T @ (importance * (answers - predicted)) - RIDGE * len(rows) * weights)
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    slopes = weights[:-1] / scales
    return np.append(slopes, weights[-1] - slopes @ means)


def _balance(samples: list[Sample]) -> Matrix:
    """Return the importance of each sample: sizes, and answerable and impossible requests, count alike."""
    kinds = [(sample.group, sample.is_answerable) for sample in samples]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    return np.array([len(samples) / len(counts) / counts[kind] for kind in kinds])


def _weighted_quantile(values: Matrix, importance: Matrix, share: float) -> float:
    order = values.argsort()
    passed = importance[order].cumsum() / importance.sum()
    return float(values[order][int(np.searchsorted(passed, share))])


def write_weights(name: str, fitted: Calibration) -> None:
    """Replace the weights of a calibration in its module."""
    path = Path(calibration.__file__)
    values = ", ".join(f"{field.name}={getattr(fitted, field.name)}" for field in fields(fitted))
    source = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"({name}: Final = Calibration\()[^)]*\)")
    path.write_text(pattern.sub(rf"\g<1>\n    {values}\n)", source, count=1), encoding="utf-8")


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder that holds the catalogs and training_pairs.")
@click.option("--vectors", type=click.Path(path_type=Path), help="File that keeps tool vectors between runs.")
@click.option("--mode", type=click.Choice(list(NAMES)), default="hybrid", help="The search mode.")
@click.option("--write", is_flag=True, help="Replace the weights in the package.")
def main(data: Path | None, vectors: Path | None, mode: str, write: bool) -> None:
    """Fit the weights of the confidence."""
    samples = list(draw_samples(data_folder(data), vectors, mode))
    fitted = fit_weights(samples)
    click.echo(f"{len(samples):,} requests: {fitted}")
    if write:
        write_weights(NAMES[mode], fitted)


if __name__ == "__main__":
    main()

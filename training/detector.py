"""Train the detector of the safety scanner, and measure it on authors that take no part in the training.

    python -m training.detector --data FOLDER --out src/toolcrib/encoder/data --start src/toolcrib/encoder/data/detector.npz

Only definitions have labels, not sentences: the score of a definition is that of its most suspicious
sentence. Real tools count as benign. Before each epoch but the first, a sample of them is scored, and
those with the highest scores are used.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterable, Sequence
from hashlib import md5
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tests.safety.scanner_corpus import AUTHORS, load_author
from toolcrib.encoder.tokenizer import WordPieceTokenizer, load_vocabulary
from toolcrib.safety.detector import Passage
from toolcrib.safety.scan import split_definition
from training.encoder import HEADS, WIDTH, Encoder
from training.export import Arrays, quantize, read_encoder, read_layers, write_arrays

LAYERS, RANK, HIDDEN = 3, 32, 64
EPOCHS, FILTER_EPOCHS, BATCH, RATE, WARM_UP = 6, 12, 32, 1e-3, 30
# With the weights of an earlier detector.
FURTHER_EPOCHS, FURTHER_RATE = 2, 5e-4
WORD_DROPOUT, DROPOUT = 0.1, 0.15
MASK_ID, FIRST_WORD_ID = 103, 200
# Passages of real tools per epoch: the hardest of a sample, and random ones.
SAMPLE, HARD, RANDOM = 12_000, 2_500, 1_000
BATCH_TOKENS = 3_000
# The share of real tools above each threshold.
HIGH_SHARE, LOW_SHARE = 0.0015, 0.01
# The share of their passages that the filter leaves to the detector.
FILTER_SHARE = 0.2
CATALOGS = ("mcp_catalog", "catalog_composio", "catalog_mcpzero", "catalog_toucan")
PARTS = ("qkv", "mix", "widen", "narrow")

Definition = Sequence[Passage]


class AdaptedLinear(nn.Module):
    """A frozen linear layer with a trained change of low rank."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(linear.in_features, RANK) / math.sqrt(linear.in_features))
        self.up = nn.Parameter(torch.zeros(RANK, linear.out_features))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x) + (x @ self.down) @ self.up
        return y


class DetectorModel(nn.Module):
    """The first layers of the encoder with adapters, and a classifier of sentences."""

    def __init__(self, encoder: Encoder, layers: int) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        encoder.layers = encoder.layers[:layers]
        for layer in encoder.layers:
            for part in PARTS:
                setattr(layer, part, AdaptedLinear(getattr(layer, part)))
            layer.mix_norm.requires_grad_(True)
            layer.norm.requires_grad_(True)
        self.linear, self.widen, self.narrow = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, 1)
        self.dropout = nn.Dropout(DROPOUT)
        nn.init.constant_(self.linear.bias, -2)

    def forward(self, passages: Sequence[Passage]) -> tuple[Tensor, Tensor]:
        """Return the score of every sentence, and the number of its passage."""
        texts = [self._drop_words(passage.ids) if self.training else passage.ids for passage in passages]
        tokens = self.encoder.run_layers(texts)
        spans = [(row, sentence.tokens) for row, passage in enumerate(passages) for sentence in passage.sentences]
        rows, starts, ends = (
            torch.tensor(part) for part in zip(*((r, s.start, s.stop) for r, s in spans), strict=True)
        )
        sums = functional.pad(tokens.cumsum(1), (0, 0, 1, 0))
        means = self.dropout((sums[rows, ends] - sums[rows, starts]) / (ends - starts)[:, None])
        scores = self.linear(means) + self.narrow(torch.relu(self.widen(means)))
        return scores[:, 0], rows

    def load_classifier(self, file: Path) -> None:
        """Take over the classifier of a written detector."""
        arrays = {name: torch.tensor(array).float() for name, array in np.load(file).items() if "scorer." in name}
        with torch.no_grad():
            self.linear.weight.copy_(arrays["scorer.linear"])
            self.linear.bias.fill_(arrays["scorer.bias"])
            self.widen.weight.copy_(arrays["scorer.widen"].T)
            self.widen.bias.copy_(arrays["scorer.widen_shift"])
            self.narrow.weight.copy_(arrays["scorer.narrow"])
            self.narrow.bias.zero_()

    def arrays(self) -> Arrays:
        """Return the layers and the classifier with the names that the package expects."""
        arrays: Arrays = {"layers": np.array(len(self.encoder.layers))}
        for number, layer in enumerate(self.encoder.layers):
            for part in PARTS:
                adapted = getattr(layer, part)
                matrix = (adapted.linear.weight.T + adapted.down @ adapted.up).detach().clone()
                bias = adapted.linear.bias.detach().clone()
                if part == "qkv":
                    # The divisor of the attention is part of the weights.
                    matrix[:, :WIDTH] /= (WIDTH // HEADS) ** 0.5
                    bias[:WIDTH] /= (WIDTH // HEADS) ** 0.5
                name = f"{number}.{part}"
                arrays[name], arrays[f"{name}.scale"] = quantize(matrix.numpy(), axis=0)
                arrays[f"{name}.bias"] = bias.numpy()
            for part in ("mix_norm", "norm"):
                norm = getattr(layer, part)
                arrays[f"{number}.{part}.scale"] = norm.weight.detach().numpy()
                arrays[f"{number}.{part}.shift"] = norm.bias.detach().numpy()
        arrays["linear"], arrays["narrow"] = (
            self.linear.weight.detach().numpy()[0],
            self.narrow.weight.detach().numpy()[0],
        )
        arrays["widen"] = self.widen.weight.detach().numpy().T.astype(np.float16)
        arrays["widen_shift"] = self.widen.bias.detach().numpy()
        arrays["bias"] = (self.linear.bias + self.narrow.bias).detach().numpy()[0]
        return arrays

    @staticmethod
    def _drop_words(ids: Sequence[int]) -> list[int]:
        return [MASK_ID if id > FIRST_WORD_ID and random.random() < WORD_DROPOUT else id for id in ids]


class DetectorData(NamedTuple):
    """Definitions by author and label, the passages of real tools, and the real tools that are only measured."""

    poisoned: dict[str, list[Definition]]
    benign: dict[str, list[Definition]]
    passages: list[Passage]
    measured: list[Definition]


def load_data(folder: Path, tokenizer: WordPieceTokenizer) -> DetectorData:
    """Read the corpora and catalogs. Half of the servers of `mcp_catalog` take no part in the training."""
    poisoned: dict[str, list[Definition]] = {}
    benign: dict[str, list[Definition]] = {}
    for author in AUTHORS:
        for name, definition, is_poisoned in load_author(author):
            target = poisoned if is_poisoned else benign
            target.setdefault(author, []).append(split_definition({"name": name, **definition}, tokenizer))
    used: list[Definition] = []
    measured: list[Definition] = []
    for catalog in CATALOGS:
        for line in (folder / catalog / "tools.jsonl").read_text(encoding="utf-8").splitlines():
            tool = json.loads(line)
            is_measured = catalog == "mcp_catalog" and md5(tool["server"].encode()).digest()[0] % 2
            (measured if is_measured else used).append(split_definition(_build_definition(tool), tokenizer))
    known = {sentence.text for tool in measured for passage in tool for sentence in passage.sentences}
    passages = [passage for tool in used for passage in tool if known.isdisjoint(s.text for s in passage.sentences)]
    return DetectorData(poisoned, benign, passages, measured)


def _build_definition(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: tool[key] for key in ("name", "title", "description", "input_schema") if key in tool}


def fit_model(
    data: DetectorData, model: DetectorModel, authors: Iterable[str], epochs: int, rate: float = RATE
) -> DetectorModel:
    """Train a model on the definitions of these authors, and return it."""
    random.seed(0)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.01)
    labelled = [
        (definition, label)
        for author in authors
        # Benign definitions count twice: there are fewer of them, and false alarms are worse.
        for label, side in ((1.0, data.poisoned), (0.0, data.benign), (0.0, data.benign))
        for definition in side.get(author, ())
        if definition
    ]
    steps = epochs * -(-(len(labelled) + HARD + RANDOM) // BATCH)
    step = 0
    for epoch in range(epochs):
        negatives = random.sample(data.passages, RANDOM) + _choose_hard(model, data.passages, epoch)
        batches = _build_batches([*labelled, *(([passage], 0.0) for passage in negatives)])
        total = 0.0
        model.train()
        for batch in batches:
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1, step / WARM_UP) * max(0.02, 1 - step / steps)
            loss = functional.binary_cross_entropy_with_logits(
                _score_definitions(model, [definition for definition, _ in batch]),
                torch.tensor([label for _, label in batch]),
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            step, total = step + 1, total + float(loss.detach())
        print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}", flush=True)
    return model


def _score_definitions(model: DetectorModel, definitions: Sequence[Definition]) -> Tensor:
    """Return a smooth maximum of the scores of each definition's sentences."""
    scores, rows = model([passage for definition in definitions for passage in definition])
    owners = torch.tensor([number for number, definition in enumerate(definitions) for _ in definition])[rows]
    sums = torch.zeros(len(definitions)).index_add(0, owners, torch.exp(scores.clamp(max=30)))
    return torch.log(sums + 1e-9)


def _build_batches(examples: list[tuple[Definition, float]]) -> list[list[tuple[Definition, float]]]:
    """Return random batches of examples that are about equally long."""
    random.shuffle(examples)
    batches: list[list[tuple[Definition, float]]] = []
    for start in range(0, len(examples), 10 * BATCH):
        block = sorted(examples[start : start + 10 * BATCH], key=lambda one: max(len(p.ids) for p in one[0]))
        batches += [block[at : at + BATCH] for at in range(0, len(block), BATCH)]
    random.shuffle(batches)
    return batches


def _choose_hard(model: DetectorModel, passages: Sequence[Passage], epoch: int) -> list[Passage]:
    """Return the passages of a random sample with the highest scores; before the first epoch, any."""
    sample = random.sample(passages, SAMPLE if epoch else HARD)
    scores = score_all(model, [[passage] for passage in sample])
    return [sample[at] for at in np.argsort(-scores)[:HARD]]


@torch.no_grad()
def score_all(model: DetectorModel, definitions: Sequence[Definition]) -> NDArray[np.float64]:
    """Return the highest score of each definition's sentences."""
    model.eval()
    parts = [(number, passage) for number, definition in enumerate(definitions) for passage in definition]
    parts.sort(key=lambda part: len(part[1].ids))
    highest = np.full(len(definitions), -np.inf)
    while parts:
        count = max(BATCH_TOKENS // len(parts[min(20, len(parts) - 1)][1].ids), 1)
        batch, parts = parts[:count], parts[count:]
        scores, rows = model([passage for _, passage in batch])
        for score, row in zip(scores.tolist(), rows.tolist(), strict=True):
            highest[batch[row][0]] = max(highest[batch[row][0]], score)
    return highest


def choose_thresholds(data: DetectorData, model: DetectorModel, word_filter: DetectorModel) -> dict[str, float]:
    """Return the thresholds of both models: shares of the real tools that are only measured."""
    passages = [[passage] for tool in data.measured for passage in tool]
    real = score_all(model, data.measured)
    return {
        "filter.threshold": float(np.quantile(score_all(word_filter, passages), 1 - FILTER_SHARE)),
        "scorer.threshold": float(np.quantile(real, 1 - HIGH_SHARE)),
        "low": float(np.quantile(real, 1 - LOW_SHARE)),
    }


def build_scorer(encoder: Encoder, start: Path | None) -> DetectorModel:
    """Return an untrained scorer, or one with the weights of a written detector."""
    if start is None:
        return DetectorModel(encoder, LAYERS)
    weights = read_layers(start, "scorer.")
    encoder.layers = encoder.layers[: sum(name.endswith("qkv.weight") for name in weights)]
    encoder.load_state_dict({**encoder.state_dict(), **weights})
    model = DetectorModel(encoder, len(encoder.layers))
    model.load_classifier(start)
    return model


def main() -> None:
    """Train, choose the thresholds, measure each author and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--without", default="", help="an author to leave out of the training")
    parser.add_argument("--start", type=Path, help="the detector to continue with")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = load_data(options.data, WordPieceTokenizer(load_vocabulary()))
    authors = [author for author in AUTHORS if author != options.without]
    encoder = options.out / "encoder.npz"
    scorer = build_scorer(read_encoder(encoder), options.start)
    settings = (FURTHER_EPOCHS, FURTHER_RATE) if options.start else (EPOCHS, RATE)
    models = {
        "filter": fit_model(data, DetectorModel(read_encoder(encoder), 0), authors, FILTER_EPOCHS),
        "scorer": fit_model(data, scorer, authors, *settings),
    }
    thresholds = choose_thresholds(data, models["scorer"], models["filter"])
    for author in AUTHORS:
        sides = (side[author] for side in (data.poisoned, data.benign))
        found, alarms = (score_all(models["scorer"], side) >= thresholds["scorer.threshold"] for side in sides)
        print(f"{author}: found {found.mean():.1%}, benign flagged {alarms.mean():.1%}", flush=True)
    arrays = {f"{name}.{part}": array for name, model in models.items() for part, array in model.arrays().items()}
    values = {name: np.array(value, np.float32) for name, value in thresholds.items()}
    write_arrays(options.out / "detector.npz", arrays | values)


if __name__ == "__main__":
    main()

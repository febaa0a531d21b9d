"""Train the encoder: a query must be near the tool that serves it, and far from other tools."""

from __future__ import annotations

import copy
import json
import random
import re
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.encoder.glossary import translate_to_english
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.search.dense.tool_text import build_tool_text
from training.checkpoint import save
from training.data import CATALOGS, CLUMP, Example, TrainingData
from training.encoder import Encoder, ParallelEncoder, cosine_schedule
from training.servers import Key
from training.variation import vary_query, vary_tool_text

WARM_UP: Final = 30
BATCH_CLUMPS: Final = 16
# Siblings that have no query in a batch: tools of the same server with a similar name.
SIBLINGS: Final = 12
SHARPNESS: Final = 20.0
# Tools of different servers with this similarity are taken to do the same, unless their verbs differ.
# In one server only copies do the same.
TWINS, COPIES = 0.75, 0.97
# The tools of past batches that every query is compared with.
REMEMBERED: Final = 4096
# The weight of the loss that gives the scores of different queries the same meaning.
ABSOLUTE: Final = 0.3
MAX_TOKENS: Final = 64
MAX_TOOL_TOKENS: Final = 60
MIDDLE_LAYERS: Final = (2, 3)
AVERAGE: Final = 0.98
DEV_TOOLS: Final = 350

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+")
# Verbs with the same number do the same; tools with verbs of different numbers do not.
VERBS: Final = {
    verb: number
    for number, verbs in enumerate(
        (
            "create add new insert make post register upload write append",
            "delete remove drop clear purge destroy cancel revoke unregister",
            "update edit modify set change rename patch replace move",
            "list search find query browse lookup",
            "get read fetch show describe view retrieve download",
            "start run execute launch enable activate resume open connect subscribe lock follow",
            "stop kill terminate disable deactivate pause close disconnect unsubscribe unlock unfollow",
            "send reply publish share invite notify",
            "count aggregate summarize analyze compare",
        )
    )
    for verb in verbs.split()
}


@dataclass(frozen=True, slots=True)
class Round:
    """A training round: its steps and learning rate, and the share of its weights that is kept.

    After the round, the weights are interpolated with the stock weights, which know more about
    servers that the training has never seen. The learning rate falls as if there were `planned` steps.
    With `skip_layers`, the middle layers are skipped more and more often, at the end always.
    """

    steps: int
    planned: int
    rate: float
    kept: float
    skip_layers: bool = False


class Scale(nn.Module):
    """The similarity from which a tool fits, learned with the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(10.0))
        self.start = nn.Parameter(torch.tensor(-7.0))


class ContrastiveTrainer:
    """A training run. It can be interrupted, and continues from the last checkpoint."""

    def __init__(
        self, data: TrainingData, tokenizer: WordPieceTokenizer, encoder: Encoder, plan: Round, folder: Path
    ) -> None:
        self._data, self._encoder, self._plan, self._folder = data, encoder, plan, folder
        self._tokenizer = tokenizer
        self._parallel = ParallelEncoder(encoder)
        # Whether two tools do the same is judged by the weights at the start. Judged by the weights in training, the
        # more similar tools become, the fewer of them are negatives, until all vectors collapse.
        self._reference = ParallelEncoder(copy.deepcopy(encoder))
        self._reference_vectors: dict[Key, Tensor] = {}
        self._scale = Scale()
        self._memory: deque[tuple[Key, Tensor]] = deque(maxlen=REMEMBERED)
        self._siblings = _find_siblings(data)
        # Word vectors stay as they are: words that no example has keep their place among the others.
        encoder.words.weight.requires_grad_(False)
        self._learned = [p for p in encoder.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": self._learned},
            {"params": list(self._scale.parameters()), "lr": 50 * plan.rate, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=plan.rate, weight_decay=0.01, fused=True)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: cosine_schedule(step, plan.planned, WARM_UP)
        )
        self._mean: dict[str, Tensor] = {}
        self._stock: Mapping[str, Tensor] = {}
        self._step = self._epoch = 0

    def run(self, stock: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Train, and return the mean of the last weights, interpolated with the stock weights."""
        self._stock = stock
        checkpoint = self._folder / "checkpoint.pt"
        if checkpoint.exists():
            self._restore(checkpoint)
        began, begun_at = time.monotonic(), self._step
        while self._step < self._plan.steps:
            for batch in self._batches():
                loss = self._learn(batch, random.Random(self._step))
                self._step += 1
                if self._step % 10 == 0:
                    seconds = (time.monotonic() - began) / (self._step - begun_at)
                    print(f"step {self._step} loss {loss:.3f} {seconds:.1f} s a step", flush=True)
                if self._step % 50 == 0:
                    save(checkpoint, self._state())
                if self._step % 100 == 0:
                    self._report()
                if self._step == self._plan.steps:
                    break
            self._epoch += 1
        save(checkpoint, self._state())
        return interpolate(self._mean, stock, self._plan.kept)

    def _state(self) -> dict[str, Any]:
        parts = self._encoder, self._scale, self._optimizer, self._schedule
        return {
            "parts": [part.state_dict() for part in parts],
            "mean": self._mean,
            "memory": list(self._memory),
            "step": self._step,
            "epoch": self._epoch + 1,
        }

    def _restore(self, checkpoint: Path) -> None:
        state = torch.load(checkpoint)
        parts = self._encoder, self._scale, self._optimizer, self._schedule
        for part, values in zip(parts, state["parts"], strict=True):
            part.load_state_dict(values)
        self._memory.extend(state["memory"])
        self._mean, self._step, self._epoch = state["mean"], state["step"], state["epoch"]

    def _batches(self) -> Iterator[list[Example]]:
        clumps = iter(self._data.sample_epoch(self._epoch))
        while batch := [example for clump in islice(clumps, BATCH_CLUMPS) for example in clump]:
            while len(batch) < BATCH_CLUMPS * CLUMP and (more := next(clumps, None)):
                batch += more
            yield batch

    def _learn(self, batch: Sequence[Example], chance: random.Random) -> float:
        keys = [example.tool for example in batch]
        keys += self._sample_siblings(keys, chance)
        asked = [(at, query) for at, example in enumerate(batch) for query in self._sample_queries(example, chance)]
        right = torch.tensor([at for at, _ in asked])
        texts = [self._tokenizer.encode(vary_tool_text(self._data.tools[key], chance), MAX_TOOL_TOKENS) for key in keys]
        texts += [
            self._tokenizer.encode(translate_to_english(vary_query(query, chance)), MAX_TOKENS) for _, query in asked
        ]

        def loss(vectors: Tensor) -> Tensor:
            tools, queries = vectors[: len(keys)], vectors[len(keys) :]
            return self._loss(batch, keys, tools, queries, right)

        value = self._parallel.learn(texts, loss, self._skipped_layers(chance))
        nn.utils.clip_grad_norm_(self._learned, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._schedule.step()
        self._update_mean()
        return value

    def _sample_queries(self, example: Example, chance: random.Random) -> list[str]:
        """Return the need, which is hardest, and one of the other styles."""
        need, *others = example.queries
        return [need, chance.choice(others)] if others else [need]

    def _sample_siblings(self, keys: Sequence[Key], chance: random.Random) -> list[Key]:
        present = set(keys)
        found: dict[Key, None] = {}
        for key in chance.sample(keys, len(keys)):
            free = [one for one in self._siblings.get(key, ()) if one not in present]
            if free and len(found) < SIBLINGS:
                found[chance.choice(free)] = None
        return list(found)

    def _skipped_layers(self, chance: random.Random) -> list[int]:
        share = self._step / self._plan.steps if self._plan.skip_layers else 0.0
        return [layer for layer in MIDDLE_LAYERS if chance.random() < share]

    def _loss(
        self, batch: Sequence[Example], keys: Sequence[Key], tools: Tensor, queries: Tensor, right: Tensor
    ) -> Tensor:
        remembered = list(self._memory)
        bank = torch.stack([vector for _, vector in remembered]) if remembered else tools.detach()[:0]
        others = [*keys, *(key for key, _ in remembered)]
        with torch.no_grad():
            serves_too = self._find_twins(batch, others)[right]
        similarity = queries @ torch.cat((tools, bank)).T
        loss = functional.cross_entropy(SHARPNESS * similarity.masked_fill(serves_too, -1.0), right)
        fits = functional.one_hot(right, len(keys)).float()
        logits = self._scale.slope * similarity[:, : len(keys)] + self._scale.start
        each = functional.binary_cross_entropy_with_logits(logits, fits, reduction="none")
        each = each.masked_fill(serves_too[:, : len(keys)], 0.0)
        self._memory.extend(zip(keys, tools.detach(), strict=True))
        return loss + ABSOLUTE * each.sum(1).mean()

    def _find_twins(self, batch: Sequence[Example], others: Sequence[Key]) -> Tensor:
        """Return which other tools may serve the queries of an example, so they are not negatives."""
        known = self._reference_vectors
        missing = [key for key in dict.fromkeys(others) if key not in known]
        if missing:
            texts = [self._tokenizer.encode(build_tool_text(self._data.tools[key]), MAX_TOOL_TOKENS) for key in missing]
            known.update(zip(missing, self._reference.encode(texts), strict=True))
        bank = torch.stack([known[key] for key in others])
        similarity = bank[: len(batch)] @ bank.T
        servers, verbs = [self._server(key) for key in others], [self._verb(key) for key in others]
        twins = similarity > TWINS
        for row, column in twins.nonzero().tolist():
            if servers[row] == servers[column]:
                twins[row, column] = bool(similarity[row, column] > COPIES)
            elif -1 not in (verbs[row], verbs[column]) and verbs[row] != verbs[column]:
                twins[row, column] = False
        for row, example in enumerate(batch):
            same = {example.tool, *example.also}
            twins[row, [column for column, key in enumerate(others) if key in same]] = True
            twins[row, row] = False
        return twins

    def _server(self, key: Key) -> tuple[str, str]:
        return key[0], self._data.tools[key].server or key[1]

    def _verb(self, key: Key) -> int:
        words = _WORD_BOUNDARY.sub(" ", self._data.tools[key].name).lower().split()
        return next((VERBS[word] for word in words if word in VERBS), -1)

    def _update_mean(self) -> None:
        state = {name: tensor.detach() for name, tensor in self._encoder.state_dict().items() if name != "words.weight"}
        if not self._mean:
            self._mean = {name: tensor.clone() for name, tensor in state.items()}
        for name, tensor in state.items():
            self._mean[name].lerp_(tensor, 1 - AVERAGE)

    def _report(self) -> None:
        """Print and save how often the right tool of a dev server is first, and in the top five."""
        chosen = random.Random(0).sample(self._data.written["dev"], DEV_TOOLS)
        state = {name: tensor.clone() for name, tensor in self._encoder.state_dict().items()}
        for kept in (1.0, self._plan.kept):
            self._encoder.load_state_dict(interpolate(self._mean, self._stock, kept), strict=False)
            line = json.dumps({"step": self._step, "kept": kept, **self._measure(chosen)})
            print(line, flush=True)
            with (self._folder / "curve.jsonl").open("a") as curve:
                curve.write(line + "\n")
        self._encoder.load_state_dict(state)

    def _measure(self, chosen: Sequence[Example]) -> dict[str, float]:
        tools = self._parallel.encode(
            [self._tokenizer.encode(build_tool_text(self._data.tools[one.tool]), MAX_TOOL_TOKENS) for one in chosen]
        )
        figures: dict[str, float] = {}
        for style, name in enumerate(("need", "ask")):
            queries = self._parallel.encode([self._tokenizer.encode(one.queries[style], MAX_TOKENS) for one in chosen])
            similarity = queries @ tools.T
            ranks = (similarity > similarity.diagonal()[:, None]).sum(1)
            figures[f"{name} first"] = round(float((ranks == 0).float().mean()), 4)
            figures[f"{name} in 5"] = round(float((ranks < 5).float().mean()), 4)
        return figures


def interpolate(weights: Mapping[str, Tensor], stock: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return the weights with this share, and the stock weights with the rest."""
    return {name: share * tensor + (1 - share) * stock[name] for name, tensor in weights.items()}


def _find_siblings(data: TrainingData) -> dict[Key, list[Key]]:
    """Return, for tools with examples, the tools of the same server with the most similar names."""
    by_server: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for key, side in data.sides.items():
        if side == "train" and key[0] in CATALOGS:
            by_server[key[0], data.tools[key].server].append(key)
    words = {
        key: set(_WORD_BOUNDARY.sub(" ", data.tools[key].name).lower().split())
        for keys in by_server.values()
        for key in keys
    }
    found: dict[Key, list[Key]] = {}
    for key in {example.tool for example in data.written["train"]} & words.keys():
        own = words[key]
        near = sorted(
            (one for one in by_server[key[0], data.tools[key].server] if one != key),
            key=lambda one: -len(own & words[one]) / max(1, len(own | words[one])),
        )
        found[key] = near[:6]
    return found

"""Train the encoder: a query shall lie near the tools that serve it, and far from the others."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from training.checkpoint import save
from training.data import Data, Key, Lesson
from training.encoder import Encoder, cosine_schedule

BATCH = 64
SHARPNESS = 20.0
# Two tools this alike are taken to do the same: none is a counter-example for the other's queries.
TWINS = 0.8
# How much it counts that scores of different queries mean the same (a threshold for all of them).
ABSOLUTE = 0.3
MAX_TOKENS = 64
WITNESSES = 400


@dataclass(frozen=True, slots=True)
class Round:
    """One round of training: how long, how fast, on which part of the given lessons."""

    epochs: int
    rate: float
    # The rate falls as if there were so many epochs.
    planned: int
    part: float = 1.0
    with_own: bool = False
    # After the round the weights are drawn back a little to the stock model's: what that knows of the
    # world, and training forgets, is worth more on needs unlike those trained on.
    kept: float = 1.0


class Scale(nn.Module):
    """Where, on the scale of likeness, fitting begins: learnt along with the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(10.0))
        self.start = nn.Parameter(torch.tensor(-7.0))


class Trainer:
    """One run of training, which can be stopped and taken up again at the end of an epoch."""

    def __init__(self, data: Data, pieces: WordPieceTokenizer, encoder: Encoder, plan: Round, out: Path) -> None:
        self._data, self._encoder, self._plan, self._out = data, encoder, plan, out
        self._ids = {key: pieces.encode(text, MAX_TOKENS) for key, text in data.passages().items()}
        self._pieces = pieces
        self._scale = Scale()
        self._seen: dict[Key, Tensor] = {}
        steps = sum(1 for epoch in range(plan.planned) for _ in self._plain_batches(epoch))
        groups = [
            {"params": [p for n, p in encoder.named_parameters() if n != "words.weight"]},
            {"params": [encoder.words.weight], "weight_decay": 0.0},
            {"params": list(self._scale.parameters()), "lr": 50 * plan.rate, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=plan.rate, weight_decay=0.01, fused=True)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: cosine_schedule(step, steps, steps // 20)
        )
        print(f"{steps} steps of {BATCH} tools, {plan.epochs} epochs", flush=True)

    def run(self) -> None:
        """Train, and write the weights and the witness's figures after every epoch."""
        checkpoint = self._out / "checkpoint.pt"
        first, step = self._resume(checkpoint) if checkpoint.exists() else (0, 0)
        began, begun_at = time.monotonic(), step
        if not step:
            self._report(0, 0)
        for epoch in range(first, self._plan.epochs):
            for batch in self._batches(epoch):
                loss = self._step(batch, random.Random(step))
                step += 1
                if step % 10 == 0:
                    each = (time.monotonic() - began) / (step - begun_at)
                    print(f"step {step} loss {loss:.3f} {each:.1f} s a step", flush=True)
                if step % 100 == 0:
                    self._report(epoch, step)
            self._report(epoch, step)
            save(checkpoint, self._state() | {"epochs": epoch + 1, "steps": step})

    def _state(self) -> dict[str, Any]:
        parts = self._encoder, self._scale, self._optimizer, self._schedule
        return {"parts": [part.state_dict() for part in parts], "seen": self._seen}

    def _resume(self, checkpoint: Path) -> tuple[int, int]:
        """Go on where an earlier run has stopped: after so many epochs and steps."""
        told = torch.load(checkpoint)
        parts = self._encoder, self._scale, self._optimizer, self._schedule
        for part, state in zip(parts, told["parts"], strict=True):
            part.load_state_dict(state)
        self._seen = told["seen"]
        return told["epochs"], told["steps"]

    def _step(self, batch: Sequence[Lesson], chance: random.Random) -> float:
        texts = [text for lesson in batch for text in lesson.queries]
        owner = torch.tensor([at for at, lesson in enumerate(batch) for _ in lesson.queries])
        vectors = self._encoder(
            [self._ids[lesson.tool] for lesson in batch] + [self._pieces.encode(text, MAX_TOKENS) for text in texts]
        )
        tools, queries = vectors[: len(batch)], vectors[len(batch) :]
        for lesson, vector in zip(batch, tools.detach(), strict=True):
            self._seen[lesson.tool] = vector
        likeness = queries @ tools.T
        serves_too = self._serves_too(batch, tools.detach())[owner]
        apart = likeness.masked_fill(serves_too, -1.0)
        loss = functional.cross_entropy(SHARPNESS * apart, owner)
        fits = functional.one_hot(owner, len(batch)).float()
        logits = self._scale.slope * likeness + self._scale.start
        each = functional.binary_cross_entropy_with_logits(logits, fits, reduction="none")
        loss = loss + ABSOLUTE * each.masked_fill(serves_too, 0.0).sum(1).mean()
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._encoder.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        return loss.item()

    def _serves_too(self, batch: Sequence[Lesson], tools: Tensor) -> Tensor:
        """Which other tools of the batch may serve a lesson's queries: neither right nor wrong."""
        twins = tools @ tools.T > TWINS
        for row, lesson in enumerate(batch):
            for column, other in enumerate(batch):
                if other.tool in lesson.also or other.tool == lesson.tool:
                    twins[row, column] = True
        return twins.fill_diagonal_(False)

    def _batches(self, epoch: int) -> Iterator[list[Lesson]]:
        """The first epoch in any order; later ones with tools that lie near each other together."""
        if epoch == 0:
            yield from self._plain_batches(epoch)
            return
        left = self._lessons(epoch)
        chance = random.Random(epoch)
        known = [lesson for lesson in left if lesson.tool in self._seen]
        rest = [lesson for lesson in left if lesson.tool not in self._seen]
        at = torch.stack([self._seen[lesson.tool] for lesson in known])
        free = torch.ones(len(known), dtype=torch.bool)
        while bool(free.any()):
            chosen: list[int] = []
            # Half of a batch are neighbourhoods of four, the other half comes from anywhere.
            while len(chosen) < BATCH and bool(free.any()):
                seed = chance.choice(free.nonzero()[:, 0].tolist())
                free[seed] = False
                chosen.append(seed)
                if len(chosen) < BATCH // 2:
                    near = (at @ at[seed]).masked_fill(~free, -1.0).topk(min(12, len(known)))
                    picked = chance.sample(near.indices.tolist(), min(3, len(known)))
                    for one in picked:
                        if bool(free[one]):
                            free[one] = False
                            chosen.append(one)
            batch = [known[index] for index in chosen]
            while rest and len(batch) < BATCH:
                batch.append(rest.pop())
            yield batch
        for start in range(0, len(rest), BATCH):
            yield rest[start : start + BATCH]

    def _lessons(self, epoch: int) -> list[Lesson]:
        return self._data.epoch(epoch, self._plan.part, self._plan.with_own)

    def _plain_batches(self, epoch: int) -> Iterator[list[Lesson]]:
        lessons = self._lessons(epoch)
        for start in range(0, len(lessons), BATCH):
            yield lessons[start : start + BATCH]

    @torch.no_grad()
    def _report(self, epoch: int, step: int) -> None:
        """How the witness's queries fare among the witness's tools."""
        chosen = random.Random(0).sample(self._data.witness, min(WITNESSES, len(self._data.witness)))
        tools = self._encoder([self._ids[lesson.tool] for lesson in chosen])
        figures: dict[str, float] = {"epoch": epoch, "step": step}
        for style, name in enumerate(("need", "ask", "agent")):
            queries = self._encoder([self._pieces.encode(lesson.queries[style], MAX_TOKENS) for lesson in chosen])
            likeness = queries @ tools.T
            ranks = (likeness > likeness.diagonal()[:, None]).sum(1)
            figures[f"{name} first"] = round(float((ranks == 0).float().mean()), 4)
            figures[f"{name} in 5"] = round(float((ranks < 5).float().mean()), 4)
        print(json.dumps(figures), flush=True)
        with (self._out / "curve.jsonl").open("a") as curve:
            curve.write(json.dumps(figures) + "\n")

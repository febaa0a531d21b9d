"""Train the teacher: a query must be near the tool that serves it, and far from other tools.

Queries are compared with the tools of their own batch only. Vectors of earlier batches would be out of date: with a
memory of them the loss rises after fifty steps, and the encoder forgets what it knew.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.core.tool import Tool
from toolcrib.encoder.glossary import translate_to_english
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS
from toolcrib.search.dense.tool_text import build_tool_text
from training.data import CATALOGS, CLUMP, Example, TrainingData
from training.encoder import Encoder, ParallelEncoder, cosine_schedule
from training.mpnet import MpnetEncoder
from training.servers import Key
from training.variation import vary_query, vary_tool_text

STEPS, WARM_UP, RATE = 400, 20, 3e-5
# The first layers are not trained, which saves a third of the time.
FROZEN_LAYERS: Final = 6
BATCH_CLUMPS: Final = 16
# Siblings that have no query in a batch: tools of the same server with a similar name.
SIBLINGS: Final = 12
SHARPNESS: Final = 20.0
# Tools of different servers with this similarity are taken to do the same, unless their verbs differ.
# In one server only copies do the same.
TWINS, COPIES = 0.75, 0.97
MAX_TOOL_TOKENS: Final = 60
# The share of the previous weights in the running mean, which is the result.
AVERAGE: Final = 0.985
DEV_TOOLS: Final = 500

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


class TeacherTrainer:
    """Trains a teacher on the queries of the training side.

    Whether two tools do the same is judged by another encoder, the reference.
    """

    def __init__(
        self, data: TrainingData, tokenizer: WordPieceTokenizer, teacher: MpnetEncoder, reference: Encoder
    ) -> None:
        self._data, self._tokenizer, self._teacher = data, tokenizer, teacher
        self._parallel, self._reference = ParallelEncoder(teacher), ParallelEncoder(reference)
        self._reference_vectors: dict[Key, Tensor] = {}
        self._siblings = _find_siblings(data)
        teacher.requires_grad_(False)
        teacher.layers[FROZEN_LAYERS:].requires_grad_(True)

    def run(self) -> dict[str, Tensor]:
        """Train, and return the mean of the last weights."""
        learned = [parameter for parameter in self._teacher.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learned, lr=RATE, weight_decay=0.01, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: cosine_schedule(step, STEPS, WARM_UP))
        mean = {name: tensor.clone() for name, tensor in self._teacher.state_dict().items()}
        for step, batch in enumerate(islice(self._batches(), STEPS)):
            loss = self._learn(batch, random.Random(step))
            nn.utils.clip_grad_norm_(learned, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            for name, tensor in self._teacher.state_dict().items():
                mean[name].lerp_(tensor, 1 - AVERAGE)
            if step % 10 == 9:
                print(f"teacher, step {step + 1}: loss {loss:.3f}", flush=True)
        self._teacher.load_state_dict(mean)
        self._report()
        return mean

    def _batches(self) -> Iterator[list[Example]]:
        epoch = 0
        while True:
            clumps = iter(self._data.sample_epoch(epoch))
            while batch := [example for clump in islice(clumps, BATCH_CLUMPS) for example in clump]:
                while len(batch) < BATCH_CLUMPS * CLUMP and (more := next(clumps, None)):
                    batch += more
                yield batch
            epoch += 1

    def _learn(self, batch: Sequence[Example], chance: random.Random) -> float:
        """Add the gradients of a batch, and return its loss."""
        keys = [example.tool for example in batch]
        keys += self._sample_siblings(keys, chance)
        asked = [(at, query) for at, example in enumerate(batch) for query in _sample_queries(example, chance)]
        right = torch.tensor([at for at, _ in asked])
        texts = [self._tokenizer.encode(vary_tool_text(self._data.tools[key], chance), MAX_TOOL_TOKENS) for key in keys]
        texts += [
            self._tokenizer.encode(translate_to_english(vary_query(query, chance)), MAX_TOKENS) for _, query in asked
        ]
        serves_too = self._find_twins(batch, keys)[right]

        def loss(vectors: Tensor) -> Tensor:
            similarity = vectors[len(keys) :] @ vectors[: len(keys)].T
            return functional.cross_entropy(SHARPNESS * similarity.masked_fill(serves_too, -1.0), right)

        return self._parallel.learn(texts, loss)

    def _sample_siblings(self, keys: Sequence[Key], chance: random.Random) -> list[Key]:
        present = set(keys)
        found: dict[Key, None] = {}
        for key in chance.sample(keys, len(keys)):
            free = [one for one in self._siblings.get(key, ()) if one not in present]
            if free and len(found) < SIBLINGS:
                found[chance.choice(free)] = None
        return list(found)

    @torch.no_grad()
    def _find_twins(self, batch: Sequence[Example], others: Sequence[Key]) -> Tensor:
        """Return which other tools may serve the queries of an example, so they are not negatives."""
        known = self._reference_vectors
        missing = [key for key in dict.fromkeys(others) if key not in known]
        if missing:
            texts = [self._tokenizer.encode(build_tool_text(self._data.tools[key]), MAX_TOOL_TOKENS) for key in missing]
            known.update(zip(missing, self._reference.encode(texts), strict=True))
        vectors = torch.stack([known[key] for key in others])
        similarity = vectors[: len(batch)] @ vectors.T
        servers, verbs = [self._server(key) for key in others], [find_verb(self._data.tools[key]) for key in others]
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

    def _report(self) -> None:
        """Print how often the right tool of a dev server is first, and in the top five."""
        chosen = random.Random(0).sample(self._data.written["dev"], DEV_TOOLS)
        tools = self._parallel.encode(
            [self._tokenizer.encode(build_tool_text(self._data.tools[one.tool]), MAX_TOOL_TOKENS) for one in chosen]
        )
        for style, name in enumerate(("needs", "requests")):
            queries = self._parallel.encode([self._tokenizer.encode(one.queries[style], MAX_TOKENS) for one in chosen])
            similarity = queries @ tools.T
            ranks = (similarity > similarity.diagonal()[:, None]).sum(1)
            first, in_five = (float((ranks < limit).float().mean()) for limit in (1, 5))
            print(f"teacher, {name} of dev servers: {first:.1%} first, {in_five:.1%} in five", flush=True)


def find_verb(tool: Tool) -> int:
    """Return the number of the verb in a tool's name, or -1."""
    words = _WORD_BOUNDARY.sub(" ", tool.name).lower().split()
    return next((VERBS[word] for word in words if word in VERBS), -1)


def _sample_queries(example: Example, chance: random.Random) -> list[str]:
    """Return the need, which is hardest, and one of the other styles."""
    need, *others = example.queries
    return [need, chance.choice(others)] if others else [need]


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

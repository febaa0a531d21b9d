"""Train the sketcher: it learns to say at once what the trained encoder says after reading."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.encoder.default import MAX_STATIC_HEAD_TOKENS, MAX_STATIC_TOKENS, SEPARATOR
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from training.encoder import WIDTH
from training.export import Arrays, quantised

SMALL, BENT = 128, 512
EPOCHS, BATCH, ASKED = 20, 512, 256
RATE = 4e-3
SHARPNESS, TWINS = 20.0, 0.8
# What it counts to say the same as the encoder, beside telling the right tool from others.
SAMENESS = 4.0


class Bend(nn.Module):
    """The trained side of `toolcrib.encoder.default.Bend`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.straight = nn.Linear(width, WIDTH)
        self.widen = nn.Linear(width, BENT)
        self.narrow = nn.Linear(BENT, WIDTH, bias=False)
        nn.init.zeros_(self.narrow.weight)

    def forward(self, x: Tensor) -> Tensor:
        bent = self.narrow(functional.relu(self.widen(x)))
        return functional.normalize(self.straight(x) + bent, dim=1)

    def arrays(self, name: str) -> Arrays:
        """The weights in the names and layout of the product."""
        tensors = {
            "straight": self.straight.weight.T,
            "shift": self.straight.bias,
            "widen": self.widen.weight.T,
            "widen_shift": self.widen.bias,
            "narrow": self.narrow.weight.T,
        }
        return {f"{name}.{part}": t.detach().contiguous().numpy() for part, t in tensors.items()}


class Sketcher(nn.Module):
    """The trained side of `toolcrib.encoder.default.Sketcher`."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(vocabulary, SMALL, mode="sum")
        nn.init.normal_(self.words.weight, std=0.05)
        self.weights = nn.Embedding(vocabulary, 1)
        nn.init.zeros_(self.weights.weight)
        self.tool, self.query = Bend(2 * SMALL), Bend(SMALL)

    def means(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """The weighted mean of the pieces of each text."""
        lengths = torch.tensor([len(text) for text in texts])
        flat = torch.tensor([id for text in texts for id in text])
        weights = self.weights(flat)[:, 0].exp()
        owner = torch.repeat_interleave(torch.arange(len(texts)), lengths)
        total = torch.zeros(len(texts)).index_add(0, owner, weights)
        begins = torch.cumsum(lengths, 0) - lengths
        sums: Tensor = self.words(flat, begins, per_sample_weights=weights)
        return sums / total[:, None]

    def arrays(self) -> Arrays:
        """The weights in the names and layout of the product."""
        words, scale = quantised(self.words.weight.detach().numpy(), axis=1)
        weights = self.weights.weight.detach().exp()[:, 0].numpy().astype(np.float32)
        named = {"words": words, "words.scale": scale, "weights": weights}
        return {**named, **self.tool.arrays("tool"), **self.query.arrays("query")}


@dataclass(frozen=True, slots=True)
class Taught:
    """Texts and what the encoder says of them; `served` pairs queries with the tools they ask for."""

    tools: list[str]
    tool_vectors: Tensor
    queries: list[str]
    query_vectors: Tensor
    served: list[tuple[int, int]]


def train(pieces: WordPieceTokenizer, vocabulary: int, taught: Taught) -> Sketcher:
    """A sketcher that has learnt from the encoder."""
    torch.manual_seed(0)
    chance = random.Random(0)
    heads, rests = zip(*(_bags(pieces, text) for text in taught.tools), strict=True)
    asked = [pieces.encode_without_special_tokens(text, MAX_STATIC_TOKENS) or [0] for text in taught.queries]
    net = Sketcher(vocabulary)
    order = list(range(len(heads)))
    steps = EPOCHS * (len(order) // BATCH)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: max(0.02, 1 - at / steps))
    for epoch in range(EPOCHS):
        chance.shuffle(order)
        for start in range(0, len(order) - BATCH + 1, BATCH):
            some = order[start : start + BATCH]
            queries, served = zip(*chance.sample(taught.served, ASKED), strict=True)
            both = [*some, *served]
            drawn = net.tool(
                torch.cat((net.means([heads[at] for at in both]), net.means([rests[at] for at in both])), 1)
            )
            wanted = net.query(net.means([asked[at] for at in queries]))
            tools, said = taught.tool_vectors[both], taught.query_vectors[list(queries)]
            loss = SAMENESS * (2 - (drawn * tools).sum(1).mean() - (wanted * said).sum(1).mean())
            own, true = drawn[len(some) :], tools[len(some) :]
            twins = (true @ true.T > TWINS).fill_diagonal_(False)
            right = torch.arange(ASKED)
            for asking, answer in ((said, own), (wanted, true)):
                logits = SHARPNESS * (asking @ answer.T).masked_fill(twins, -1.0)
                loss = loss + functional.cross_entropy(logits, right)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"sketcher, epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    return net


def _bags(pieces: WordPieceTokenizer, text: str) -> tuple[list[int], list[int]]:
    head, _, rest = text.partition(SEPARATOR)
    return (
        pieces.encode_without_special_tokens(head, MAX_STATIC_HEAD_TOKENS) or [0],
        pieces.encode_without_special_tokens(rest, MAX_STATIC_TOKENS) or [0],
    )

"""Train the static encoder: the weighted mean of word vectors, projected into the space of the encoder.

The word vectors start with what the encoder returns for each word piece alone. So a word piece that
no training text contains is near those that mean the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from toolcrib.encoder.default import MAX_STATIC_HEAD_TOKENS, MAX_STATIC_TOKENS, SEPARATOR
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from training.encoder import THREADS, WIDTH
from training.export import Arrays, quantize
from training.texts import TextVectors, TrainingTexts

WORD_WIDTH, HIDDEN = 256, 512
EPOCHS, BATCH = 11, 512
RATE, WORD_RATE = 1e-3, 1e-3
SHARPNESS, TWINS = 20.0, 0.8
# The weight of equal vectors, next to that of finding the right tool.
SAMENESS: Final = 4.0
# How strongly word vectors are held at their start, and the share of tokens that is left out.
HOLD, DROPPED = 0.02, 0.15
# Of a frequent word piece, the weight in the mean falls with its share of all tokens.
SMOOTH: Final = 1e-3


class ResidualProjection(nn.Module):
    """The trained side of `toolcrib.encoder.default.ResidualProjection`."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        width = len(start)
        self.straight = nn.Linear(width, WIDTH)
        self.widen = nn.Linear(width, HIDDEN)
        self.narrow = nn.Linear(HIDDEN, WIDTH, bias=False)
        nn.init.zeros_(self.narrow.weight)
        nn.init.zeros_(self.straight.bias)
        with torch.no_grad():
            self.straight.weight.copy_(start.T)

    def forward(self, x: Tensor) -> Tensor:
        """Return unit vectors."""
        hidden = self.narrow(functional.relu(self.widen(x)))
        return functional.normalize(self.straight(x) + hidden, dim=1)

    def arrays(self, name: str) -> Arrays:
        """Return the weights with the names and layout of the package."""
        tensors = {
            "straight": self.straight.weight.T,
            "shift": self.straight.bias,
            "widen": self.widen.weight.T,
            "widen_shift": self.widen.bias,
            "narrow": self.narrow.weight.T,
        }
        return {f"{name}.{part}": t.detach().contiguous().numpy() for part, t in tensors.items()}


class StaticEncoder(nn.Module):
    """The trained side of `toolcrib.encoder.default.StaticEncoder`."""

    def __init__(self, words: Tensor, weights: Tensor) -> None:
        super().__init__()
        middle = words.mean(0)
        _, _, basis = torch.linalg.svd(words - middle, full_matrices=False)
        basis = basis[:WORD_WIDTH]
        self.start = (words - middle) @ basis.T
        self.words = nn.EmbeddingBag.from_pretrained(self.start.clone(), freeze=False, mode="sum")
        self.weights = nn.Embedding.from_pretrained(weights.log()[:, None].clone(), freeze=False)
        self.tool = ResidualProjection(torch.cat((0.5 * basis, 0.5 * basis)))
        self.query = ResidualProjection(basis.clone())

    def average(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Return the weighted mean of the word vectors of each text."""
        lengths = torch.tensor([len(text) for text in texts])
        flat = torch.tensor([id for text in texts for id in text])
        weights = self.weights(flat)[:, 0].exp()
        owner = torch.repeat_interleave(torch.arange(len(texts)), lengths)
        total = torch.zeros(len(texts)).index_add(0, owner, weights)
        begins = torch.cumsum(lengths, 0) - lengths
        sums: Tensor = self.words(flat, begins, per_sample_weights=weights)
        return sums / total[:, None]

    def encode_tools(self, tools: Sequence[tuple[list[int], list[int]]]) -> Tensor:
        """Return the vectors of tools, given as the tokens of the head and of the rest."""
        heads, rests = zip(*tools, strict=True)
        vectors: Tensor = self.tool(torch.cat((self.average(heads), self.average(rests)), 1))
        return vectors

    def encode_queries(self, queries: Sequence[list[int]]) -> Tensor:
        """Return the vectors of queries."""
        vectors: Tensor = self.query(self.average(queries))
        return vectors

    def arrays(self) -> Arrays:
        """Return the weights with the names and layout of the package."""
        words, scale = quantize(self.words.weight.detach().numpy(), axis=1)
        weights = self.weights.weight.detach().exp()[:, 0].numpy().astype(np.float32)
        named = {"words": words, "words.scale": scale, "weights": weights}
        return {**named, **self.tool.arrays("tool"), **self.query.arrays("query")}


def train_static(
    tokenizer: WordPieceTokenizer, words: Tensor, texts: TrainingTexts, vectors: TextVectors
) -> StaticEncoder:
    """Return a static encoder. `words` has the vector of each word piece alone."""
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    chance = random.Random(0)
    tools = [split_tool_text(tokenizer, text) for text in texts.tools]
    queries = [tokenizer.encode_without_special_tokens(text, MAX_STATIC_TOKENS) or [0] for text in texts.queries]
    static = StaticEncoder(words, _weigh_tokens(tools, queries, len(words)))
    steps = EPOCHS * (len(texts.pairs) // BATCH)
    optimizer = torch.optim.Adam(
        [
            {"params": [*static.tool.parameters(), *static.query.parameters()], "lr": RATE},
            {"params": [static.words.weight, static.weights.weight], "lr": WORD_RATE},
        ]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: max(0.02, 1 - at / steps))
    for epoch in range(EPOCHS):
        pairs = chance.sample(texts.pairs, len(texts.pairs))
        for begin in range(0, len(pairs) - BATCH + 1, BATCH):
            asked, served = map(list, zip(*pairs[begin : begin + BATCH], strict=True))
            more = chance.sample(range(len(tools)), BATCH)
            found = static.encode_tools([_drop_pair(tools[at], chance) for at in [*served, *more]])
            said = static.encode_queries([_drop(queries[at], chance) for at in asked])
            truth, meant = vectors.tools[[*served, *more]], vectors.queries[asked]
            loss = SAMENESS * (2 - (found * truth).sum(1).mean() - (said * meant).sum(1).mean())
            twins = truth[:BATCH] @ truth.T > TWINS
            right = torch.arange(BATCH)
            twins[right, right] = False
            for query, tool in ((said, found), (said, truth), (meant, found)):
                loss = loss + functional.cross_entropy(SHARPNESS * (query @ tool.T).masked_fill(twins, -1.0), right)
            used = torch.tensor(sorted({id for at in asked for id in queries[at]}))
            loss = loss + HOLD * (static.words.weight[used] - static.start[used]).square().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"static encoder, epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    return static


def split_tool_text(tokenizer: WordPieceTokenizer, text: str) -> tuple[list[int], list[int]]:
    """Return the tokens of the head and of the rest of a tool's text."""
    head, _, rest = text.partition(SEPARATOR)
    return (
        tokenizer.encode_without_special_tokens(head, MAX_STATIC_HEAD_TOKENS) or [0],
        tokenizer.encode_without_special_tokens(rest, MAX_STATIC_TOKENS) or [0],
    )


def _weigh_tokens(tools: Sequence[tuple[list[int], list[int]]], queries: Sequence[list[int]], size: int) -> Tensor:
    """Return the weight of each word piece: less for frequent ones."""
    count = Counter(id for head, rest in tools for id in (*head, *rest))
    count.update(id for query in queries for id in query)
    total = sum(count.values())
    return torch.tensor([SMOOTH / (SMOOTH + count[id] / total) for id in range(size)])


def _drop_pair(tool: tuple[list[int], list[int]], chance: random.Random) -> tuple[list[int], list[int]]:
    return _drop(tool[0], chance), _drop(tool[1], chance)


def _drop(ids: list[int], chance: random.Random) -> list[int]:
    return [id for id in ids if chance.random() >= DROPPED] or ids

"""The encoder in torch: BERT's layers, packed for short texts of different lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, INNER, LAYERS, POSITIONS = 384, 12, 1536, 6, 128
EPSILON = 1e-12
# So many texts are read side by side.
TOGETHER = 48


class Layer(nn.Module):
    """Attention, then two dense layers; each adds to what it was given and is normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.mix_norm = nn.LayerNorm(WIDTH, EPSILON)
        self.widen = nn.Linear(WIDTH, INNER)
        self.narrow = nn.Linear(INNER, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        count, length, _ = x.shape
        qkv = self.qkv(x).view(count, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        # In 16 bits it would take five times as long to learn from.
        with torch.autocast("cpu", enabled=False):
            q, k, v = qkv.float()
            seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.mix_norm(x + self.mix(seen.transpose(1, 2).reshape(count, length, WIDTH)))
        inner: Tensor = self.norm(x + self.narrow(functional.gelu(self.widen(x))))
        return inner


class Encoder(nn.Module):
    """Texts, as ids of word pieces, into vectors of length one."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Embedding(POSITIONS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, texts: Sequence[Sequence[int]]) -> Tensor:
        # Texts of like length go together, so that hardly any padding is computed.
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        parts = [[texts[at] for at in order[start : start + TOGETHER]] for start in range(0, len(order), TOGETHER)]
        padded = [_filled_up(part) for part in parts]
        # All pieces are looked up at once: what is learnt of them is then added up once.
        words = self.words(torch.tensor([id for part in padded for id in part]))
        sizes = list(map(len, padded))
        # Products in 16 bits take half the time; what is added to, and the weights, have 32.
        with torch.autocast("cpu", torch.bfloat16):
            read = [self._read(part, some) for part, some in zip(parts, words.split(sizes), strict=True)]
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(read)[back]

    def _read(self, texts: Sequence[Sequence[int]], words: Tensor) -> Tensor:
        """Some texts, of which the words are looked up, filled up to the length of the longest."""
        words = words.view(len(texts), -1, WIDTH)
        length = words.shape[1]
        present = torch.tensor([[1.0] * len(t) + [0.0] * (length - len(t)) for t in texts])
        mask = ((1.0 - present) * -1e9)[:, None, None, :]
        x = self.norm(words + self.places.weight[:length])
        for layer in self.layers:
            x = layer(x, mask)
        mean = (x * present[..., None]).sum(1) / present.sum(1, keepdim=True)
        return functional.normalize(mean, dim=1)


def _filled_up(texts: Sequence[Sequence[int]]) -> list[int]:
    """The pieces of all texts, one text after the other, each as long as the longest."""
    length = max(map(len, texts))
    return [id for text in texts for id in (*text, *[0] * (length - len(text)))]


def from_minilm(folder: Path) -> Encoder:
    """The encoder with the weights of all-MiniLM-L6-v2."""
    stock = load_file(folder / "model.safetensors")
    encoder = Encoder(len(stock["embeddings.word_embeddings.weight"]))
    own: dict[str, Tensor] = {
        "words.weight": stock["embeddings.word_embeddings.weight"],
        # Every text is of the first kind, so what marks the kind is part of the place.
        "places.weight": stock["embeddings.position_embeddings.weight"][:POSITIONS]
        + stock["embeddings.token_type_embeddings.weight"][0],
        "norm.weight": stock["embeddings.LayerNorm.weight"],
        "norm.bias": stock["embeddings.LayerNorm.bias"],
    }
    for at in range(LAYERS):
        old, new = f"encoder.layer.{at}", f"layers.{at}"
        for kind in ("weight", "bias"):
            own[f"{new}.qkv.{kind}"] = torch.cat(
                [stock[f"{old}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            )
            own[f"{new}.mix.{kind}"] = stock[f"{old}.attention.output.dense.{kind}"]
            own[f"{new}.mix_norm.{kind}"] = stock[f"{old}.attention.output.LayerNorm.{kind}"]
            own[f"{new}.widen.{kind}"] = stock[f"{old}.intermediate.dense.{kind}"]
            own[f"{new}.narrow.{kind}"] = stock[f"{old}.output.dense.{kind}"]
            own[f"{new}.norm.{kind}"] = stock[f"{old}.output.LayerNorm.{kind}"]
    encoder.load_state_dict(own)
    return encoder


def cosine_schedule(step: int, steps: int, warm: int) -> float:
    """The share of the full learning rate at a step: up, then down along a cosine."""
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

"""The encoder all-mpnet-base-v2 in torch: a teacher with five times the weights of the shipped encoder.

Its vocabulary is that of the shipped encoder after four ids of its own, so both read the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from training.encoder import HAS_BFLOAT16, HEADS, Layer, mark_tokens

WIDTH, INNER, LAYERS, POSITIONS = 768, 3072, 12, 130
EPSILON: Final = 1e-5
# The ids of the first and the last token of a text, and what is added to the ids of all others.
FIRST, LAST, OFFSET, FIRST_PLACE = 0, 2, 4, 2
BUCKETS, MAX_DISTANCE = 32, 128


class MpnetEncoder(nn.Module):
    """Encodes texts, given as token ids of the shipped vocabulary, as unit vectors."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Embedding(POSITIONS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.distances = nn.Embedding(BUCKETS, HEADS)
        self.layers = nn.ModuleList(Layer(INNER, WIDTH, EPSILON) for _ in range(LAYERS))

    def forward(self, texts: Sequence[Sequence[int]], skipped: Container[int] = ()) -> Tensor:
        """Return one row per text. Layers in `skipped` are not applied."""
        present = mark_tokens(texts)
        length = present.shape[1]
        rows = [[FIRST, *(id + OFFSET for id in text[1:-1]), LAST, *[1] * (length - len(text))] for text in texts]
        mask = ((1.0 - present) * -1e9)[:, None, None, :] + self._build_bias(length)
        with torch.autocast("cpu", torch.bfloat16, enabled=HAS_BFLOAT16):
            x = self.norm(self.words(torch.tensor(rows)) + self.places.weight[FIRST_PLACE : FIRST_PLACE + length])
            for number, layer in enumerate(self.layers):
                if number not in skipped:
                    x = layer(x, mask)
        mean = (x.float() * present[..., None]).sum(1) / present.sum(1, keepdim=True)
        return functional.normalize(mean, dim=1)

    def _build_bias(self, length: int) -> Tensor:
        """Return the bias of attention between each pair of places, per head."""
        place = torch.arange(length)
        distance = place[:, None] - place[None, :]
        half, exact = BUCKETS // 2, BUCKETS // 4
        size = distance.abs().clamp(min=1)
        far = exact + (torch.log(size / exact) / math.log(MAX_DISTANCE / exact) * (half - exact)).long()
        bucket = torch.where(distance.abs() < exact, distance.abs(), far.clamp(max=half - 1)) + half * (distance < 0)
        return self.distances(bucket).permute(2, 0, 1)[None].detach()


def from_mpnet(folder: Path) -> MpnetEncoder:
    """Return an encoder with the weights of all-mpnet-base-v2."""
    stock = load_file(folder / "model.safetensors")
    encoder = MpnetEncoder(len(stock["embeddings.word_embeddings.weight"]))
    own: dict[str, Tensor] = {
        "words.weight": stock["embeddings.word_embeddings.weight"],
        "places.weight": stock["embeddings.position_embeddings.weight"][:POSITIONS],
        "norm.weight": stock["embeddings.LayerNorm.weight"],
        "norm.bias": stock["embeddings.LayerNorm.bias"],
        "distances.weight": stock["encoder.relative_attention_bias.weight"],
    }
    parts = {
        "mix": "attention.attn.o",
        "mix_norm": "attention.LayerNorm",
        "widen": "intermediate.dense",
        "narrow": "output.dense",
        "norm": "output.LayerNorm",
    }
    for at in range(LAYERS):
        old, new = f"encoder.layer.{at}", f"layers.{at}"
        for kind in ("weight", "bias"):
            own[f"{new}.qkv.{kind}"] = torch.cat([stock[f"{old}.attention.attn.{part}.{kind}"] for part in "qkv"])
            own |= {f"{new}.{name}.{kind}": stock[f"{old}.{part}.{kind}"] for name, part in parts.items()}
    encoder.load_state_dict(own)
    return encoder

"""The encoder in torch: BERT's layers with mean pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, INNER, LAYERS, POSITIONS = 384, 12, 1536, 6, 128
EPSILON = 1e-12
THREADS = 2
# Products in bfloat16 take half the time with AVX-512, and far longer without it. Sums and weights have 32 bits.
HAS_BFLOAT16 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
# The tokens of one part of a batch.
PART_TOKENS = 1024


class Layer(nn.Module):
    """Self-attention and a feed-forward block, each with a residual connection and a norm."""

    def __init__(self, inner: int = INNER, width: int = WIDTH, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.mix_norm = nn.LayerNorm(width, epsilon)
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, epsilon)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        count, length, width = x.shape
        qkv = self.qkv(x).view(count, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        # The gradient in 16 bits would take five times as long.
        with torch.autocast("cpu", enabled=False):
            q, k, v = qkv.float()
            seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.mix_norm(x + self.mix(seen.transpose(1, 2).reshape(count, length, width)))
        inner: Tensor = self.norm(x + self.narrow(functional.gelu(self.widen(x))))
        return inner


class Encoder(nn.Module):
    """Encodes texts, given as token ids, as unit vectors."""

    def __init__(self, vocabulary: int, layers: int = LAYERS) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Embedding(POSITIONS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, texts: Sequence[Sequence[int]], skipped: Container[int] = ()) -> Tensor:
        """Return one row per text. Layers in `skipped` are not applied."""
        present = mark_tokens(texts)
        layers = [layer for number, layer in enumerate(self.layers) if number not in skipped]
        x = self._run_layers(texts, present, layers)
        mean = (x * present[..., None]).sum(1) / present.sum(1, keepdim=True)
        return functional.normalize(mean, dim=1)

    @torch.no_grad()
    def encode_tokens(self, texts: Sequence[Sequence[int]], layers: int) -> Tensor:
        """Return the vectors of all tokens after some layers, padded to the longest text."""
        return self._run_layers(texts, mark_tokens(texts), list(self.layers)[:layers])

    def run_layers(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of all tokens after all layers, padded to the longest text."""
        return self._run_layers(texts, mark_tokens(texts), list(self.layers))

    def _run_layers(self, texts: Sequence[Sequence[int]], present: Tensor, layers: Sequence[nn.Module]) -> Tensor:
        length = present.shape[1]
        ids = torch.tensor([[*text, *[0] * (length - len(text))] for text in texts])
        mask = ((1.0 - present) * -1e9)[:, None, None, :]
        with torch.autocast("cpu", torch.bfloat16, enabled=HAS_BFLOAT16):
            x = self.norm(self.words(ids) + self.places.weight[:length])
            for layer in layers:
                x = layer(x, mask)
        vectors: Tensor = x.float()
        return vectors


class ParallelEncoder:
    """Encodes batches in two threads that do not wait for each other at every product.

    On a busy machine this is much faster than two threads per product.
    """

    def __init__(self, encoder: nn.Module) -> None:
        self.encoder = encoder
        torch.set_num_threads(1)
        self._threads = ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(1,))

    def encode(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Return one row per text, without gradients."""
        parts = _cut_by_length(texts)

        def run(part: list[int]) -> Tensor:
            with torch.no_grad():
                return self.encoder([texts[at] for at in part])

        return _join_rows(parts, list(self._threads.map(run, parts)))

    def learn(
        self, texts: Sequence[Sequence[int]], loss: Callable[[Tensor], Tensor], skipped: Container[int] = ()
    ) -> float:
        """Add the gradients of a loss of all vectors of a batch, and return the loss."""
        parts = _cut_by_length(texts)
        rows = list(self._threads.map(lambda part: self.encoder([texts[at] for at in part], skipped), parts))
        vectors = _join_rows(parts, [row.detach() for row in rows]).requires_grad_()
        value = loss(vectors)
        value.backward()
        assert vectors.grad is not None
        gradients = vectors.grad

        def go_back(part: list[int], row: Tensor) -> None:
            row.backward(gradients[part])

        list(self._threads.map(go_back, parts, rows))
        return value.item()


def mark_tokens(texts: Sequence[Sequence[int]]) -> Tensor:
    """Return 1 for each token and 0 for the padding up to the longest text."""
    length = max(map(len, texts))
    return torch.tensor([[1.0] * len(text) + [0.0] * (length - len(text)) for text in texts])


def _cut_by_length(texts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the places of texts of similar length together, the longest first."""
    parts: list[list[int]] = [[]]
    length = 0
    for at in sorted(range(len(texts)), key=lambda at: -len(texts[at])):
        if parts[-1] and (len(parts[-1]) + 1) * length > PART_TOKENS:
            parts.append([])
        if not parts[-1]:
            length = len(texts[at])
        parts[-1].append(at)
    return parts


def _join_rows(parts: list[list[int]], rows: list[Tensor]) -> Tensor:
    order = torch.tensor([at for part in parts for at in part])
    joined = torch.cat(rows)
    vectors = torch.empty_like(joined)
    vectors[order] = joined
    return vectors


def from_minilm(folder: Path) -> Encoder:
    """Return an encoder with the weights of all-MiniLM-L6-v2."""
    stock = load_file(folder / "model.safetensors")
    encoder = Encoder(len(stock["embeddings.word_embeddings.weight"]))
    own: dict[str, Tensor] = {
        "words.weight": stock["embeddings.word_embeddings.weight"],
        # All texts have the first token type, so its vector is part of the position's.
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
    """Return the share of the full learning rate at a step: linear warm-up, then cosine decay."""
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

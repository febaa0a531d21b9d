"""A transformer of two layers with random weights, in the layout of the shipped weight files."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS

VOCABULARY = ["[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcde")]
TOKENIZER = WordPieceTokenizer(VOCABULARY)
LAYERS, WIDTH, INNER = 2, 48, 96
TEXTS = ["a", "b c d", "c b d", "abba", "", "x y z " * 40, "e f", "f e"]


def weights(seed: int = 1, project: int = 0) -> dict[str, Any]:
    """Return the arrays of an encoder. With `project`, its vectors have that width."""
    rng = np.random.default_rng(seed)

    def floats(*shape: int, mean: float = 0.0, spread: float = 0.1) -> Any:
        return rng.normal(mean, spread, shape).astype(np.float32)

    def matrix(name: str, rows: int, columns: int) -> dict[str, Any]:
        values = rng.integers(-127, 128, (rows, columns)).astype(np.int8)
        scale = floats(columns, mean=2.0) / np.float32(127 * rows**0.5)
        return {name: values, f"{name}.scale": scale, f"{name}.bias": floats(columns)}

    arrays: dict[str, Any] = {
        "layers": np.array(LAYERS),
        "words": rng.integers(-127, 128, (len(VOCABULARY), WIDTH)).astype(np.int8),
        "words.scale": floats(len(VOCABULARY), mean=0.01, spread=0.001),
        "places": floats(MAX_TOKENS, WIDTH),
        "norm.scale": floats(WIDTH, mean=1.0),
        "norm.shift": floats(WIDTH),
    }
    for number in range(LAYERS):
        arrays |= matrix(f"{number}.qkv", WIDTH, 3 * WIDTH) | matrix(f"{number}.mix", WIDTH, WIDTH)
        arrays |= matrix(f"{number}.widen", WIDTH, INNER) | matrix(f"{number}.narrow", INNER, WIDTH)
        for norm in ("mix_norm", "norm"):
            arrays[f"{number}.{norm}.scale"] = floats(WIDTH, mean=1.0)
            arrays[f"{number}.{norm}.shift"] = floats(WIDTH)
    if project:
        arrays["project"] = floats(WIDTH, project)
    return arrays

"""An encoder of two layers with weights by chance, in the layout of the real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS

VOCABULARY = [
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcde"),
]
PIECES = WordPieceTokenizer(VOCABULARY)
LAYERS, WIDTH, INNER = 2, 48, 96
TEXTS = ["a", "b c d", "c b d", "abba", "", "x y z " * 40, "e f", "f e"]


def weights(seed: int = 1, project: int = 0) -> dict[str, Any]:
    """The arrays of an encoder; with `project`, its vectors are brought to that width."""
    chance = np.random.default_rng(seed)

    def floats(*shape: int, mean: float = 0.0, spread: float = 0.1) -> Any:
        return chance.normal(mean, spread, shape).astype(np.float32)

    def matrix(name: str, rows: int, columns: int) -> dict[str, Any]:
        whole = chance.integers(-127, 128, (rows, columns)).astype(np.int8)
        scale = floats(columns, mean=2.0) / np.float32(127 * rows**0.5)
        return {name: whole, f"{name}.scale": scale, f"{name}.bias": floats(columns)}

    made: dict[str, Any] = {
        "layers": np.array(LAYERS),
        "words": chance.integers(-127, 128, (len(VOCABULARY), WIDTH)).astype(np.int8),
        "words.scale": floats(len(VOCABULARY), mean=0.01, spread=0.001),
        "places": floats(MAX_TOKENS, WIDTH),
        "norm.scale": floats(WIDTH, mean=1.0),
        "norm.shift": floats(WIDTH),
    }
    for at in range(LAYERS):
        made |= matrix(f"{at}.qkv", WIDTH, 3 * WIDTH) | matrix(f"{at}.mix", WIDTH, WIDTH)
        made |= matrix(f"{at}.widen", WIDTH, INNER) | matrix(f"{at}.narrow", INNER, WIDTH)
        for norm in ("mix_norm", "norm"):
            made[f"{at}.{norm}.scale"] = floats(WIDTH, mean=1.0)
            made[f"{at}.{norm}.shift"] = floats(WIDTH)
    if project:
        made["project"] = floats(WIDTH, project)
    return made

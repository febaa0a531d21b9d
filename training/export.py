"""The trained weights as the product carries them: eight bits a number, one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.encoder import HEADS, WIDTH

Arrays = dict[str, NDArray[Any]]


def write(file: Path, arrays: Arrays) -> None:
    """All at once: a process that has the file open goes on with the old one."""
    unfinished = file.with_name(f"unfinished-{file.name}")
    np.savez(unfinished, **arrays)
    unfinished.replace(file)


def quantised(matrix: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A matrix in eight bits, with one scale for each place along the other axis."""
    scale = np.abs(matrix).max(axis=axis) / 127
    whole = np.rint(matrix / np.expand_dims(np.maximum(scale, 1e-12), axis))
    return whole.astype(np.int8), scale.astype(np.float32)


def encoder_arrays(state: dict[str, Tensor]) -> Arrays:
    """The encoder's weights, in the names and layout of `toolcrib.encoder.transformer`."""
    own = {name: tensor.float().numpy() for name, tensor in state.items()}
    arrays = layer_arrays(state)
    arrays["words"], arrays["words.scale"] = quantised(own["words.weight"], axis=1)
    arrays["places"] = own["places.weight"]
    arrays["norm.scale"], arrays["norm.shift"] = own["norm.weight"], own["norm.bias"]
    return arrays


def layer_arrays(state: dict[str, Tensor]) -> Arrays:
    """The layers alone, for an encoder that shares all else with another."""
    own = {name: tensor.float().numpy() for name, tensor in state.items()}
    layers = sum(name.endswith(".qkv.weight") for name in own)
    arrays: Arrays = {"layers": np.array(layers)}
    for at in range(layers):
        for part in ("qkv", "mix", "widen", "narrow"):
            matrix = own[f"layers.{at}.{part}.weight"].T.copy()
            bias = own[f"layers.{at}.{part}.bias"].copy()
            if part == "qkv":
                # What attention divides by is part of the weights.
                matrix[:, :WIDTH] /= (WIDTH // HEADS) ** 0.5
                bias[:WIDTH] /= (WIDTH // HEADS) ** 0.5
            arrays[f"{at}.{part}"], arrays[f"{at}.{part}.scale"] = quantised(matrix, axis=0)
            arrays[f"{at}.{part}.bias"] = bias
        for part in ("mix_norm", "norm"):
            arrays[f"{at}.{part}.scale"] = own[f"layers.{at}.{part}.weight"]
            arrays[f"{at}.{part}.shift"] = own[f"layers.{at}.{part}.bias"]
    return arrays

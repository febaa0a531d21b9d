"""Write the trained weights in the format of the package: 8 bits per number, one file per encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.encoder import HEADS, WIDTH, Encoder, Layer

Arrays = dict[str, NDArray[Any]]


def write_arrays(file: Path, arrays: Arrays) -> None:
    """Write a file atomically: a process that has mapped the old one can continue to use it."""
    unfinished = file.with_name(f"unfinished-{file.name}")
    np.savez(unfinished, **arrays)
    unfinished.replace(file)


def quantize(matrix: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a matrix in 8 bits, and one scale per place along the other axis."""
    scale = np.abs(matrix).max(axis=axis) / 127
    rounded = np.rint(matrix / np.expand_dims(np.maximum(scale, 1e-12), axis))
    return rounded.astype(np.int8), scale.astype(np.float32)


def build_encoder_arrays(state: dict[str, Tensor]) -> Arrays:
    """Return the weights of the encoder with the names and layout of `toolcrib.encoder.transformer`."""
    values = {name: tensor.float().numpy() for name, tensor in state.items()}
    layers = sum(name.endswith(".qkv.weight") for name in values)
    arrays: Arrays = {"layers": np.array(layers)}
    for number in range(layers):
        for part in ("qkv", "mix", "widen", "narrow"):
            matrix = values[f"layers.{number}.{part}.weight"].T.copy()
            bias = values[f"layers.{number}.{part}.bias"].copy()
            if part == "qkv":
                # The divisor of the attention is part of the weights.
                matrix[:, :WIDTH] /= (WIDTH // HEADS) ** 0.5
                bias[:WIDTH] /= (WIDTH // HEADS) ** 0.5
            arrays[f"{number}.{part}"], arrays[f"{number}.{part}.scale"] = quantize(matrix, axis=0)
            arrays[f"{number}.{part}.bias"] = bias
        for part in ("mix_norm", "norm"):
            arrays[f"{number}.{part}.scale"] = values[f"layers.{number}.{part}.weight"]
            arrays[f"{number}.{part}.shift"] = values[f"layers.{number}.{part}.bias"]
    arrays["words"], arrays["words.scale"] = quantize(values["words.weight"], axis=1)
    arrays["places"] = values["places.weight"]
    arrays["norm.scale"], arrays["norm.shift"] = values["norm.weight"], values["norm.bias"]
    return arrays


def read_encoder(file: Path) -> Encoder:
    """Return a written encoder."""
    words = dict(np.load(file))["words"]
    weights = read_layers(file)
    encoder = Encoder(len(words), layers=sum(name.endswith("qkv.weight") for name in weights))
    encoder.load_state_dict(weights)
    return encoder


def read_query_encoder(file: Path, encoder: Encoder) -> Encoder:
    """Return the query encoder of version 0.3: three layers, and the word vectors of a whole encoder."""
    weights = read_layers(file)
    small = Encoder(len(encoder.words.weight), 0)
    small.layers = nn.ModuleList(
        Layer(len(tensor)) for name, tensor in weights.items() if name.endswith("widen.weight")
    )
    small.load_state_dict({**encoder.state_dict(), **weights}, strict=False)
    return small


def read_layers(file: Path, prefix: str = "") -> dict[str, Tensor]:
    """Return the weights of a written encoder with the names of `training.encoder`.

    A query encoder has only layers. A detector has them too, with a prefix.
    """
    arrays = {name.removeprefix(prefix): array for name, array in np.load(file).items() if name.startswith(prefix)}
    values: Arrays = {}
    for number in range(int(arrays["layers"])):
        for part in ("qkv", "mix", "widen", "narrow"):
            matrix = arrays[f"{number}.{part}"] * arrays[f"{number}.{part}.scale"]
            bias = arrays[f"{number}.{part}.bias"].copy()
            if part == "qkv":
                matrix[:, :WIDTH] *= (WIDTH // HEADS) ** 0.5
                bias[:WIDTH] *= (WIDTH // HEADS) ** 0.5
            values[f"layers.{number}.{part}.weight"], values[f"layers.{number}.{part}.bias"] = matrix.T, bias
        for part in ("mix_norm", "norm"):
            values[f"layers.{number}.{part}.weight"] = arrays[f"{number}.{part}.scale"]
            values[f"layers.{number}.{part}.bias"] = arrays[f"{number}.{part}.shift"]
    if "words" in arrays:
        values["words.weight"] = arrays["words"] * arrays["words.scale"][:, None]
        values["places.weight"] = arrays["places"]
        values["norm.weight"], values["norm.bias"] = arrays["norm.scale"], arrays["norm.shift"]
    return {name: torch.tensor(np.ascontiguousarray(value)) for name, value in values.items()}

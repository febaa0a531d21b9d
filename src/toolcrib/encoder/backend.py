"""Which encoder to use here: onnxruntime's where it is installed, else that in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from toolcrib.encoder.tokenizer import WordPiece
from toolcrib.encoder.transformer import Encoder


def fastest_encoder(pieces: WordPiece, weights: Mapping[str, Any]) -> Encoder:
    """The fastest encoder that runs here. All read the same weights and mean the same."""
    try:
        module = import_module("toolcrib.encoder.onnx_backend")
    except ImportError:
        return Encoder(pieces, weights)
    encoder: Encoder = module.OnnxEncoder(pieces, weights)
    return encoder

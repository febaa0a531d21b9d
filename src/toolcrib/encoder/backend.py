"""Which encoder to use here: onnxruntime's where it is installed, else that in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import TransformerEncoder


def build_encoder(tokenizer: WordPieceTokenizer, weights: Mapping[str, Any]) -> TransformerEncoder:
    """The fastest encoder that runs here. All read the same weights and mean the same."""
    try:
        module = import_module("toolcrib.encoder.onnx_backend")
    except ImportError:
        return TransformerEncoder(tokenizer, weights)
    encoder: TransformerEncoder = module.OnnxEncoder(tokenizer, weights)
    return encoder

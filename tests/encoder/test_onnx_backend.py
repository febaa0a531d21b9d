from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.encoder.tiny_model import TEXTS, TOKENIZER, WIDTH, weights
from toolcrib.encoder.default import build_encoder
from toolcrib.encoder.transformer import ServiceNameProbe, TransformerEncoder


@pytest.mark.parametrize("project", [0, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_onnx_vectors_match_numpy_vectors(seed: int, project: int) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    from toolcrib.encoder.onnx_backend import OnnxEncoder

    arrays = weights(seed, project)
    theirs, ours = (OnnxEncoder(TOKENIZER, arrays).encode(TEXTS), TransformerEncoder(TOKENIZER, arrays).encode(TEXTS))
    assert theirs.shape == ours.shape
    assert theirs.dtype == np.float32
    assert (theirs * ours).sum(axis=1).min() > 0.99
    # Each text is most similar to itself.
    assert ((theirs @ ours.T).argmax(axis=1) == np.arange(len(TEXTS))).all()


def test_token_with_equal_values_is_quantized_without_error() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    from toolcrib.encoder.onnx_backend import OnnxEncoder

    arrays = weights()
    # With this bias the activation outputs only zeros.
    arrays["0.widen.bias"] = np.full_like(arrays["0.widen.bias"], -50)
    theirs, ours = (OnnxEncoder(TOKENIZER, arrays).encode(TEXTS), TransformerEncoder(TOKENIZER, arrays).encode(TEXTS))
    assert (theirs * ours).sum(axis=1).min() > 0.99


def test_onnxruntime_is_used_if_installed() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    assert type(build_encoder(TOKENIZER, weights())).__name__ == "OnnxEncoder"


def test_numpy_is_used_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "toolcrib.encoder.onnx_backend", raising=False)
    assert type(build_encoder(TOKENIZER, weights())) is TransformerEncoder


def test_probe_outputs_match_numpy() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    from toolcrib.encoder.onnx_backend import OnnxEncoder

    arrays = weights()
    probe = ServiceNameProbe(np.full(WIDTH, 0.1, np.float32), np.array(0, np.float32))
    _, theirs = OnnxEncoder(TOKENIZER, arrays).encode_and_probe(TEXTS, probe)
    _, ours = TransformerEncoder(TOKENIZER, arrays).encode_and_probe(TEXTS, probe)
    for onnx_logits, numpy_logits in zip(theirs, ours, strict=True):
        assert np.abs(onnx_logits - numpy_logits).max() < 0.1

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.encoder.small import PIECES, TEXTS, WIDTH, weights
from toolcrib.encoder.backend import build_encoder
from toolcrib.encoder.transformer import ServiceNameProbe, TransformerEncoder


@pytest.mark.parametrize("project", [0, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_onnxruntime_reads_our_model_and_means_the_same(seed: int, project: int) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    from toolcrib.encoder.onnx_backend import OnnxEncoder

    arrays = weights(seed, project)
    theirs, ours = (
        OnnxEncoder(PIECES, arrays).encode(TEXTS),
        TransformerEncoder(PIECES, arrays).encode(TEXTS),
    )
    assert theirs.shape == ours.shape
    assert theirs.dtype == np.float32
    assert (theirs * ours).sum(axis=1).min() > 0.99
    # Not by chance: other texts' vectors are less alike.
    assert ((theirs @ ours.T).argmax(axis=1) == np.arange(len(TEXTS))).all()


def test_a_token_whose_numbers_are_all_equal_does_no_harm() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    from toolcrib.encoder.onnx_backend import OnnxEncoder

    arrays = weights()
    # Nothing comes through the ramp of this layer: its product is nothing but zeros.
    arrays["0.widen.bias"] = np.full_like(arrays["0.widen.bias"], -50)
    theirs, ours = (
        OnnxEncoder(PIECES, arrays).encode(TEXTS),
        TransformerEncoder(PIECES, arrays).encode(TEXTS),
    )
    assert (theirs * ours).sum(axis=1).min() > 0.99


def test_onnxruntime_is_used_where_it_is_installed() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    assert type(build_encoder(PIECES, weights())).__name__ == "OnnxEncoder"


def test_without_onnxruntime_numpy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "toolcrib.encoder.onnx_backend", raising=False)
    assert type(build_encoder(PIECES, weights())) is TransformerEncoder


def test_a_probe_is_told_the_same() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    from toolcrib.encoder.onnx_backend import OnnxEncoder

    arrays = weights()
    probe = ServiceNameProbe(np.full(WIDTH, 0.1, np.float32), np.array(0, np.float32))
    _, theirs = OnnxEncoder(PIECES, arrays).encode_and_probe(TEXTS, probe)
    _, ours = TransformerEncoder(PIECES, arrays).encode_and_probe(TEXTS, probe)
    for one, other in zip(theirs, ours, strict=True):
        assert np.abs(one - other).max() < 0.1

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.encoder.tiny_model import LAYERS, TEXTS, TOKENIZER, WIDTH, weights
from toolcrib.encoder.transformer import HEADS, MAX_TOKENS, ServiceNameProbe, TransformerEncoder


def _reference_encode(arrays: dict[str, Any], text: str) -> Any:
    """Return the vector of one text, computed head by head in 64-bit floats."""

    def norm(x: Any, name: str) -> Any:
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-12)
        return x * arrays[f"{name}.scale"] + arrays[f"{name}.shift"]

    def linear(x: Any, name: str) -> Any:
        matrix = arrays[name].astype(np.float64) * arrays[f"{name}.scale"]
        return x @ matrix + arrays[f"{name}.bias"]

    ids = TOKENIZER.encode(text, MAX_TOKENS)
    words = [arrays["words"][id].astype(np.float64) * arrays["words.scale"][id] for id in ids]
    x = norm(np.array(words) + arrays["places"][: len(ids)], "norm")
    for number in range(LAYERS):
        q, k, v = np.split(linear(x, f"{number}.qkv"), 3, axis=1)
        heads = []
        for head in range(HEADS):
            own = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            weights = np.exp(q[:, own] @ k[:, own].T)
            heads.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, own])
        x = norm(x + linear(np.concatenate(heads, axis=1), f"{number}.mix"), f"{number}.mix_norm")
        wide = linear(x, f"{number}.widen")
        activated = wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))) / 2
        x = norm(x + linear(activated, f"{number}.narrow"), f"{number}.norm")
    mean = x.mean(axis=0)
    if "project" in arrays:
        mean = mean @ arrays["project"]
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("project", [0, 8])
def test_vectors_match_a_reference_implementation(project: int) -> None:
    arrays = weights(project=project)
    rows = TransformerEncoder(TOKENIZER, arrays).encode(TEXTS)
    assert rows.shape == (len(TEXTS), project or WIDTH)
    assert rows.dtype == np.float32
    for row, text in zip(rows, TEXTS, strict=True):
        assert np.abs(row - _reference_encode(arrays, text)).max() < 1e-4


def test_vector_of_a_text_does_not_depend_on_its_batch() -> None:
    encoder = TransformerEncoder(TOKENIZER, weights())
    many = [f"{text} {other}" for text in "abcde" for other in "fghij"]
    together = encoder.encode(many)
    for row, text in zip(together, many, strict=True):
        assert np.abs(encoder.encode([text])[0] - row).max() < 1e-5


def test_no_texts_give_no_rows() -> None:
    assert TransformerEncoder(TOKENIZER, weights()).encode([]).shape == (0, WIDTH)


def test_large_negative_activations_do_not_overflow() -> None:
    arrays = weights()
    arrays["0.widen.bias"] = np.full_like(arrays["0.widen.bias"], -50)
    rows = TransformerEncoder(TOKENIZER, arrays).encode(TEXTS)
    assert np.abs(rows[1] - _reference_encode(arrays, TEXTS[1])).max() < 1e-4


def test_probe_reads_tokens_after_half_of_the_layers() -> None:
    arrays = weights()
    probe = ServiceNameProbe(np.linspace(-1, 1, WIDTH, dtype=np.float32), np.array(0.5, np.float32))
    vectors, logits = TransformerEncoder(TOKENIZER, arrays).encode_and_probe(TEXTS, probe)
    assert np.array_equal(vectors, TransformerEncoder(TOKENIZER, arrays).encode(TEXTS))
    one_layer = TransformerEncoder(TOKENIZER, {**arrays, "layers": np.array(1)})
    for text, token_logits in zip(TEXTS, logits, strict=True):
        # The mean halfway vector has the direction of an encoder with half the layers.
        assert len(token_logits) == len(TOKENIZER.encode(text, MAX_TOKENS))
        halfway = one_layer.encode([text])[0]
        assert (token_logits.mean() - 0.5) / (halfway @ probe.weight) > 0


def test_token_span_of_a_name_in_its_text() -> None:
    ids = TOKENIZER.encode("a b abc d", MAX_TOKENS)
    assert ids[TOKENIZER.find_token_span("a b abc d", "abc", MAX_TOKENS)] == TOKENIZER.encode("abc", MAX_TOKENS)[1:-1]
    assert TOKENIZER.encode("x " * 80 + "a", 8)[TOKENIZER.find_token_span("x " * 80 + "a", "a", 8)] == []

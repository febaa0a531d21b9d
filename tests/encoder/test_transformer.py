from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.encoder.small import LAYERS, PIECES, TEXTS, WIDTH, weights
from toolcrib.encoder.transformer import HEADS, MAX_TOKENS, ServiceNameProbe, TransformerEncoder


def _plainly(arrays: dict[str, Any], text: str) -> Any:
    """One text by the book: token by token, head by head, in 64 bits."""

    def norm(x: Any, name: str) -> Any:
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-12)
        return x * arrays[f"{name}.scale"] + arrays[f"{name}.shift"]

    def dense(x: Any, name: str) -> Any:
        matrix = arrays[name].astype(np.float64) * arrays[f"{name}.scale"]
        return x @ matrix + arrays[f"{name}.bias"]

    ids = PIECES.encode(text, MAX_TOKENS)
    words = [arrays["words"][id].astype(np.float64) * arrays["words.scale"][id] for id in ids]
    x = norm(np.array(words) + arrays["places"][: len(ids)], "norm")
    for at in range(LAYERS):
        q, k, v = np.split(dense(x, f"{at}.qkv"), 3, axis=1)
        seen = []
        for head in range(HEADS):
            own = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            concern = np.exp(q[:, own] @ k[:, own].T)
            seen.append(concern / concern.sum(axis=1, keepdims=True) @ v[:, own])
        x = norm(x + dense(np.concatenate(seen, axis=1), f"{at}.mix"), f"{at}.mix_norm")
        wide = dense(x, f"{at}.widen")
        ramp = wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))) / 2
        x = norm(x + dense(ramp, f"{at}.narrow"), f"{at}.norm")
    mean = x.mean(axis=0)
    if "project" in arrays:
        mean = mean @ arrays["project"]
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("project", [0, 8])
def test_vectors_are_those_of_the_formulas(project: int) -> None:
    arrays = weights(project=project)
    rows = TransformerEncoder(PIECES, arrays).encode(TEXTS)
    assert rows.shape == (len(TEXTS), project or WIDTH)
    assert rows.dtype == np.float32
    for row, text in zip(rows, TEXTS, strict=True):
        assert np.abs(row - _plainly(arrays, text)).max() < 1e-4


def test_a_text_alone_and_among_others_has_one_vector() -> None:
    encoder = TransformerEncoder(PIECES, weights())
    many = [f"{text} {other}" for text in "abcde" for other in "fghij"]
    together = encoder.encode(many)
    for row, text in zip(together, many, strict=True):
        assert np.abs(encoder.encode([text])[0] - row).max() < 1e-5


def test_no_texts_are_no_rows() -> None:
    assert TransformerEncoder(PIECES, weights()).encode([]).shape == (0, WIDTH)


def test_numbers_far_below_zero_do_no_harm() -> None:
    arrays = weights()
    arrays["0.widen.bias"] = np.full_like(arrays["0.widen.bias"], -50)
    rows = TransformerEncoder(PIECES, arrays).encode(TEXTS)
    assert np.abs(rows[1] - _plainly(arrays, TEXTS[1])).max() < 1e-4


def test_a_probe_asks_the_tokens_after_half_of_the_layers() -> None:
    arrays = weights()
    probe = ServiceNameProbe(np.linspace(-1, 1, WIDTH, dtype=np.float32), np.array(0.5, np.float32))
    vectors, told = TransformerEncoder(PIECES, arrays).encode_and_probe(TEXTS, probe)
    assert np.array_equal(vectors, TransformerEncoder(PIECES, arrays).encode(TEXTS))
    one_layer = TransformerEncoder(PIECES, {**arrays, "layers": np.array(1)})
    for text, said in zip(TEXTS, told, strict=True):
        # The mean of what half of the layers give is the vector of an encoder of half the layers.
        assert len(said) == len(PIECES.encode(text, MAX_TOKENS))
        halfway = one_layer.encode([text])[0]
        lengthened = (said.mean() - 0.5) / (halfway @ probe.weight)
        assert lengthened > 0


def test_a_name_is_found_among_the_pieces_of_its_text() -> None:
    ids = PIECES.encode("a b abc d", MAX_TOKENS)
    assert (
        ids[PIECES.find_token_span("a b abc d", "abc", MAX_TOKENS)]
        == PIECES.encode("abc", MAX_TOKENS)[1:-1]
    )
    assert PIECES.encode("x " * 80 + "a", 8)[PIECES.find_token_span("x " * 80 + "a", "a", 8)] == []

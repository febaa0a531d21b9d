from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolcrib.embedders.sentence_transformers import TransformersEmbedder
from toolcrib.errors import EmbeddingFailed, InvalidConfig


class SingleMethodModel:
    """Encodes queries and tools with the same method."""

    def encode(self, texts: list[str]) -> Any:
        return np.array([[len(text), 1] for text in texts], np.float64)


class TwoMethodModel(SingleMethodModel):
    """Has separate methods for queries and documents."""

    def encode_query(self, texts: list[str]) -> Any:
        return [[len(text), 2] for text in texts]

    def encode_document(self, texts: list[str]) -> Any:
        return [[len(text), 3] for text in texts]


class FixedModel:
    def __init__(self, result: Any) -> None:
        self.result = result

    def encode(self, texts: list[str]) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_encode_is_used_for_both_sides_if_it_is_the_only_method() -> None:
    embedder = TransformersEmbedder(SingleMethodModel())
    assert embedder.embed_queries(["ab"]).tolist() == embedder.embed_tools(["ab"]).tolist() == [[2, 1]]
    assert embedder.embed_queries(["ab"]).dtype == np.float32


def test_separate_methods_for_queries_and_documents_are_used() -> None:
    embedder = TransformersEmbedder(TwoMethodModel())
    assert embedder.embed_queries(("ab",)).tolist() == [[2, 2]]
    assert embedder.embed_tools(("ab",)).tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1.0, 2.0], "the shape"),
        ([[1.0], [2.0]], "the shape"),
        ([[]], "the shape"),
        ("vectors", "not a table of numbers"),
        ([[1.0, [2.0]]], "not a table of numbers"),
        ([[float("nan")]], "infinite number or NaN"),
        ([[1e39]], "infinite number or NaN"),
        (RuntimeError("out of memory"), "RuntimeError: out of memory; check that `model.encode`"),
    ],
)
def test_invalid_rows_are_rejected(rows: object, message: str) -> None:
    with pytest.raises(EmbeddingFailed, match=message):
        TransformersEmbedder(FixedModel(rows)).embed_tools(["text"])


def test_object_without_encode_is_rejected() -> None:
    for wrong in ("all-MiniLM-L6-v2", None):
        with pytest.raises(InvalidConfig, match=r"is not a model .*; load the model first"):
            TransformersEmbedder(wrong)  # type: ignore[arg-type]


def test_real_sentence_transformers_model() -> None:
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"[UNK]": 0, "send": 1, "mail": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    static = library.models.StaticEmbedding(tokenizer, embedding_dim=8)
    model = library.SentenceTransformer(modules=[static], device="cpu")
    rows = TransformersEmbedder(model).embed_tools(["send mail", "mail"])
    assert rows.shape == (2, 8)

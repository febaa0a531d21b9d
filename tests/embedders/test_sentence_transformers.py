from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolcrib.embedders.sentence_transformers import TransformersEmbedder
from toolcrib.errors import EmbeddingFailed, InvalidConfig


class OldModel:
    """Reads both sides alike."""

    def encode(self, texts: list[str]) -> Any:
        return np.array([[len(text), 1] for text in texts], np.float64)


class NewModel(OldModel):
    """Has ways of its own for the two sides."""

    def encode_query(self, texts: list[str]) -> Any:
        return [[len(text), 2] for text in texts]

    def encode_document(self, texts: list[str]) -> Any:
        return [[len(text), 3] for text in texts]


class Says:
    def __init__(self, found: Any) -> None:
        self.found = found

    def encode(self, texts: list[str]) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_a_model_with_one_way_to_encode_reads_both_sides_so() -> None:
    embedder = TransformersEmbedder(OldModel())
    assert (
        embedder.embed_queries(["ab"]).tolist() == embedder.embed_tools(["ab"]).tolist() == [[2, 1]]
    )
    assert embedder.embed_queries(["ab"]).dtype == np.float32


def test_a_model_that_tells_queries_from_documents_is_asked_accordingly() -> None:
    embedder = TransformersEmbedder(NewModel())
    assert embedder.embed_queries(("ab",)).tolist() == [[2, 2]]
    assert embedder.embed_tools(("ab",)).tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([1.0, 2.0], "the shape"),
        ([[1.0], [2.0]], "the shape"),
        ([[]], "the shape"),
        ("vectors", "no table of numbers"),
        ([[1.0, [2.0]]], "no table of numbers"),
        ([[float("nan")]], "infinite or none"),
        ([[1e39]], "infinite or none"),
        (RuntimeError("out of memory"), "RuntimeError: out of memory; see that `model.encode`"),
    ],
)
def test_what_is_no_row_a_text_is_told_with_the_cure(found: object, told: str) -> None:
    with pytest.raises(EmbeddingFailed, match=told):
        TransformersEmbedder(Says(found)).embed_tools(["text"])


def test_what_is_no_model_is_refused_with_the_cure() -> None:
    for wrong in ("all-MiniLM-L6-v2", None):
        with pytest.raises(InvalidConfig, match=r"is no model .*; load it first"):
            TransformersEmbedder(wrong)  # type: ignore[arg-type]


def test_a_real_model_of_sentence_transformers_is_taken() -> None:
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"[UNK]": 0, "send": 1, "mail": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    static = library.models.StaticEmbedding(tokenizer, embedding_dim=8)
    model = library.SentenceTransformer(modules=[static], device="cpu")
    rows = TransformersEmbedder(model).embed_tools(["send mail", "mail"])
    assert rows.shape == (2, 8)

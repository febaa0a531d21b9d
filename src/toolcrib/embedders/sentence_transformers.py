"""A model of sentence-transformers, or anything else that encodes a list of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from toolcrib.errors import EmbeddingFailed, InvalidConfig
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.vector_checks import validate_vectors

_SOURCE = "the model"


class TextModel(Protocol):
    """What is asked of a model that is already loaded."""

    def encode(self, texts: list[str], /) -> Any:
        """One row a text."""


class TransformersEmbedder:
    """An embedder around a loaded model. Its own ways to read queries and documents are used."""

    def __init__(self, model: TextModel) -> None:
        # A text has a method of that name, too: many take a model's name for the model.
        if isinstance(model, str) or not callable(getattr(model, "encode", None)):
            raise InvalidConfig(
                f"{model!r:.100} is no model that encodes a list of texts; load it first: "
                "SentenceTransformer(name)"
            )
        # Newer models know prompts for the two sides; older ones read both alike.
        self._query: Callable[[list[str]], Any] = getattr(model, "encode_query", model.encode)
        self._tool: Callable[[list[str]], Any] = getattr(model, "encode_document", model.encode)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """What people and models ask for."""
        return _encode(self._query, texts)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """What tools say of themselves."""
        return _encode(self._tool, texts)


def _encode(encode: Callable[[list[str]], Any], texts: Sequence[str]) -> Vectors:
    try:
        found = encode(list(texts))
    # A model may fail in any way its library can; here that becomes one error of ours.
    except Exception as fault:
        raise EmbeddingFailed(
            f"{_SOURCE} could not encode {len(texts)} texts: {type(fault).__name__}: {fault}; "
            "see that `model.encode` works on its own"
        ) from fault
    return validate_vectors(found, len(texts), _SOURCE)

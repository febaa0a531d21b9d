"""An embedder around a sentence-transformers model, or any object with an `encode` method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from toolcrib.errors import EmbeddingFailed, InvalidConfig
from toolcrib.search.dense.embedder import Vectors, validate_vectors

_SOURCE = "the model"


class TextModel(Protocol):
    """A loaded model."""

    def encode(self, texts: list[str], /) -> Any:
        """Return one row per text."""


class TransformersEmbedder:
    """An embedder around a loaded model.

    It uses the model's `encode_query` and `encode_document` methods, where they exist.
    """

    def __init__(self, model: TextModel) -> None:
        # str has an `encode` method too, and passing a model's name is a common mistake.
        if isinstance(model, str) or not callable(getattr(model, "encode", None)):
            raise InvalidConfig(
                f"{model!r:.100} is not a model with an `encode` method; load the model first: "
                "SentenceTransformer(name)"
            )
        self._query: Callable[[list[str]], Any] = getattr(model, "encode_query", model.encode)
        self._tool: Callable[[list[str]], Any] = getattr(model, "encode_document", model.encode)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per query."""
        return _encode(self._query, texts)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per tool text."""
        return _encode(self._tool, texts)


def _encode(encode: Callable[[list[str]], Any], texts: Sequence[str]) -> Vectors:
    try:
        rows = encode(list(texts))
    # A model may raise anything its library raises.
    except Exception as error:
        raise EmbeddingFailed(
            f"{_SOURCE} could not encode {len(texts)} texts: {type(error).__name__}: {error}; "
            "check that `model.encode` works on its own"
        ) from error
    return validate_vectors(rows, len(texts), _SOURCE)

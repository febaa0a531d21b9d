"""An embedder for OpenAI's embeddings API, which Ollama, vLLM and many other servers speak too."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from toolcrib.embedders.json_endpoint import JsonEndpoint, build_endpoint_url, check_timeout
from toolcrib.errors import EmbeddingFailed, InvalidConfig
from toolcrib.search.dense.embedder import Vectors, validate_vectors

TIMEOUT_SECONDS: Final = 10.0
MAX_BATCH_TEXTS: Final = 128
# About 2,000 tokens of English, which every embedding model in use accepts.
MAX_TEXT_CHARS: Final = 8_000

_KIND: Final = "an embeddings endpoint"
_BAD_REQUEST_REMEDY: Final = "check that it supports this model, these dimensions and long texts"
_REMEDIES: Final = {400: _BAD_REQUEST_REMEDY, 422: _BAD_REQUEST_REMEDY}


class OpenAIEmbedder:
    """Gets vectors from an embeddings endpoint, such as `https://api.openai.com/v1`.

    `prefixes` are put before queries and tools, for models that were trained with such prefixes.
    `dimensions` requests shorter vectors from models that support it. `timeout_seconds` limits each
    attempt as a whole, including a slow reply.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str = "",
        dimensions: int | None = None,
        prefixes: tuple[str, str] = ("", ""),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        _check_options(model, dimensions, prefixes, timeout_seconds)
        self._endpoint = JsonEndpoint(
            build_endpoint_url(url, "embeddings", _KIND),
            kind=_KIND,
            key=key,
            timeout_seconds=timeout_seconds,
            error_type=EmbeddingFailed,
            remedies=_REMEDIES,
        )
        self._model = model
        self._dimensions = dimensions
        self._prefixes = prefixes

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per query."""
        return self._embed_texts(self._prefixes[0], texts)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per tool text."""
        return self._embed_texts(self._prefixes[1], texts)

    def _embed_texts(self, prefix: str, texts: Sequence[str]) -> Vectors:
        inputs = [(prefix + text)[:MAX_TEXT_CHARS] for text in texts]
        parts = [
            self._embed_batch(inputs[start : start + MAX_BATCH_TEXTS])
            for start in range(0, len(inputs), MAX_BATCH_TEXTS)
        ]
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise self._endpoint.build_error(f"returned vectors of several widths: {sorted(widths)}; use one model")
        return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)

    def _embed_batch(self, texts: list[str]) -> Vectors:
        body: dict[str, object] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        reply = self._endpoint.post(body)
        rows = validate_vectors(self._parse_rows(reply, len(texts)), len(texts), self._endpoint.url)
        if self._dimensions not in (None, rows.shape[1]):
            raise self._endpoint.build_error(
                f"returned vectors with {rows.shape[1]} dimensions, not {self._dimensions}; "
                "remove `dimensions`, or use a model that supports it"
            )
        return rows

    def _parse_rows(self, content: bytes, count: int) -> list[Any]:
        """Return the rows of a reply in the order of the texts."""
        rows: list[Any] = [None] * count
        try:
            data = json.loads(content)["data"]
            for position, item in enumerate(data):
                rows[item.get("index", position)] = _decode_embedding(item["embedding"])
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise self._endpoint.build_error(
                f"returned {self._endpoint.quote(content, 80)} instead of embeddings; "
                "check that it supports OpenAI's embeddings API"
            ) from error
        if len(data) != count:
            raise self._endpoint.build_error(f"returned {len(data)} vectors for {count} texts; use another server")
        missing = sum(row is None for row in rows)
        if missing:
            raise self._endpoint.build_error(f"returned no vector for {missing} of {count} texts; use another server")
        return rows


def _check_options(model: Any, dimensions: Any, prefixes: Any, timeout_seconds: Any) -> None:
    """Raise for options that would make every request fail."""
    if not isinstance(model, str) or not model.strip():
        raise InvalidConfig(f"`model` must be the name of a model, not {model!r}")
    if dimensions is not None and (not isinstance(dimensions, int) or isinstance(dimensions, bool) or dimensions < 1):
        raise InvalidConfig(f"`dimensions` must be a positive integer or None, not {dimensions!r}")
    is_pair = isinstance(prefixes, tuple | list) and len(prefixes) == 2
    if not is_pair or not all(isinstance(prefix, str) for prefix in prefixes):
        raise InvalidConfig(f"`prefixes` must be two strings, for queries and for tools, not {prefixes!r}")
    check_timeout(timeout_seconds)


def _decode_embedding(embedding: Any) -> Any:
    """Return one vector. Some servers use base64 even if it was not requested."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    return embedding

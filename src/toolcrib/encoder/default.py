"""The default embedding model. Its weights are loaded on first use."""

from __future__ import annotations

import hashlib
import math
import mmap
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from typing import IO, Any, Final
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from toolcrib.encoder.glossary import glossary_checksum, translate_to_english
from toolcrib.encoder.tokenizer import WordPieceTokenizer, load_vocabulary
from toolcrib.encoder.transformer import MAX_TOKENS, Array, ServiceNameProbe, TransformerEncoder

MAX_STATIC_HEAD_TOKENS: Final = 22
MAX_STATIC_TOKENS: Final = 62
# The word vectors of this many texts fit in the processor's cache.
BATCH_TEXTS: Final = 512
# Separates the names of a tool (the head) from its description.
SEPARATOR: Final = ": "
_PROJECTION_PARTS: Final = ("straight", "shift", "widen", "widen_shift", "narrow")
# The numbers of an exact product are multiples of the inverse of this.
_PRODUCT_STEPS: Final = 2.0**15
# The token ids of a text without any token.
_EMPTY: Final = [0]

# Layout of a ZIP local file header: its fixed size, and the lengths of the name and extra fields.
_ZIP_HEADER_BYTES: Final = 30
_ZIP_LENGTH_FIELDS: Final = (slice(26, 28), slice(28, 30))
# Layout of the .npy format: the length of its header, which follows directly.
_NPY_HEADER_LENGTH: Final = slice(8, 10)

# Tool vectors are cached so that several engines and modes share them.
MAX_CACHED_TOOLS: Final = 20_000
# Query vectors are cached because the same query is often repeated, and because match reasons are
# requested after the hits.
MAX_CACHED_QUERIES: Final = 1_024

_DATA = files("toolcrib.encoder") / "data"


class ResidualProjection:
    """A linear map plus a ReLU layer, added up."""

    def __init__(self, straight: Array, shift: Array, widen: Array, widen_shift: Array, narrow: Array) -> None:
        # Both paths start with a product of the same input: concatenated, it is one product.
        self._first: NDArray[Any] = np.concatenate((straight, widen), axis=1)
        self._shift: NDArray[Any] = np.concatenate((shift, widen_shift))
        self._narrow: NDArray[Any] = narrow
        self._width = len(shift)

    @classmethod
    def load(cls, weights: Mapping[str, Any], name: str) -> ResidualProjection:
        """Return the projection with this name prefix in a weight file."""
        return cls(*(weights[f"{name}.{part}"] for part in _PROJECTION_PARTS))

    def __call__(self, x: Array) -> Array:
        """Project one vector, or several rows."""
        both = np.dot(x, self._first)
        both += self._shift
        hidden = both[..., self._width :]
        y: Array = np.dot(np.maximum(hidden, 0, out=hidden), self._narrow)
        y += both[..., : self._width]
        return y


class ExactProjection(ResidualProjection):
    """A projection without rounding errors, so that a row does not depend on the other rows."""

    def __init__(self, *arrays: Array) -> None:
        super().__init__(*arrays)
        self._first, self._shift, self._narrow = map(_round_for_products, (self._first, self._shift, self._narrow))

    def __call__(self, x: Array) -> Array:
        """Project several rows."""
        both = _round_for_products(x) @ self._first + self._shift
        hidden = _round_for_products(np.maximum(both[:, self._width :], 0))
        y: Array = (hidden @ self._narrow + both[:, : self._width]).astype(np.float32)
        return y


class StaticEncoder:
    """Static embeddings of tools and queries."""

    def __init__(self, tokenizer: WordPieceTokenizer, weights: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._words = weights["words"]
        # The weight of each word piece in the mean, alone and with the scale of its int8 vector.
        self._weights: Array = weights["weights"]
        self._scales: Array = weights["words.scale"] * self._weights
        self._tool = ExactProjection.load(weights, "tool")
        self._query = ResidualProjection.load(weights, "query")

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """Return one unit vector per tool text."""
        if len(texts) > BATCH_TEXTS:
            starts = range(0, len(texts), BATCH_TEXTS)
            return np.concatenate([self.embed_tools(texts[at : at + BATCH_TEXTS]) for at in starts])
        parts = [text.partition(SEPARATOR) for text in texts]
        heads = self._means([self._token_ids(head, MAX_STATIC_HEAD_TOKENS) for head, _, _ in parts])
        rests = self._means([self._token_ids(rest, MAX_STATIC_TOKENS) for _, _, rest in parts])
        return _normalize_rows(self._tool(np.concatenate((heads, rests), axis=1)))

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Return one unit vector per query."""
        return _normalize_rows(self._encode(self._query, texts))

    def _encode(self, projection: ResidualProjection, texts: Sequence[str]) -> Array:
        if len(texts) == 1:
            return projection(self._mean(self._token_ids(texts[0], MAX_STATIC_TOKENS)))[None]
        return projection(self._means([self._token_ids(text, MAX_STATIC_TOKENS) for text in texts]))

    def _token_ids(self, text: str, limit: int) -> list[int]:
        return self._tokenizer.encode_without_special_tokens(text, limit) or _EMPTY

    def _mean(self, text: list[int]) -> Array:
        """Return the weighted mean of one text's word vectors: the fast path for one query."""
        ids = np.array(text)
        parts = self._scales.take(ids)
        parts /= np.add.reduce(self._weights.take(ids))
        mean: Array = np.dot(parts, self._words.take(ids, axis=0))
        return mean

    def _means(self, texts: list[list[int]]) -> Array:
        """Return the weighted mean of each text's word vectors."""
        flat = np.array([id for text in texts for id in text])
        starts = np.cumsum([0, *(len(text) for text in texts[:-1])])
        rows = self._words[flat] * self._scales[flat][:, None]
        sums: Array = np.add.reduceat(rows, starts, axis=0)
        sums /= np.add.reduceat(self._weights[flat], starts)[:, None]
        return sums


def _round_for_products(numbers: Array) -> NDArray[np.float64]:
    """Return numbers with so few digits that sums of their products are exact with 64 bits."""
    rounded: NDArray[np.float64] = np.rint(numbers.astype(np.float64) * _PRODUCT_STEPS) / _PRODUCT_STEPS
    return rounded


def _normalize_rows(rows: Array) -> Array:
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), np.float32(1e-12))[:, None]
    return rows


def load_arrays(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """Return the read-only arrays of an uncompressed `.npz` file by name.

    The file is memory-mapped: a query needs only a few rows of the largest array.
    """
    data = _map_file(file)
    with ZipFile(file) as archive:
        offsets = {entry.filename.removesuffix(".npy"): entry.header_offset for entry in archive.infolist()}
    return {name: _array_at(data, offset) for name, offset in offsets.items()}


def _map_file(file: IO[bytes]) -> mmap.mmap | bytes:
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        # Not a file on disk, for example a member of a zipped package.
        content = file.read()
        file.seek(0)
        return content


def _array_at(data: mmap.mmap | bytes, offset: int) -> NDArray[Any]:
    zip_header = data[offset : offset + _ZIP_HEADER_BYTES]
    start = offset + _ZIP_HEADER_BYTES
    start += sum(_little_endian(zip_header[field]) for field in _ZIP_LENGTH_FIELDS)
    header_at = start + _NPY_HEADER_LENGTH.stop
    values_at = header_at + _little_endian(data[start:header_at][_NPY_HEADER_LENGTH])
    header = literal_eval(data[header_at:values_at].decode("latin-1"))
    shape = header["shape"]
    flat = np.frombuffer(data, np.dtype(header["descr"]), int(np.prod(shape)), values_at)
    array = flat.reshape(shape, order="F" if header["fortran_order"] else "C")
    # Unaligned arrays are copied; the large ones hold single bytes and are always aligned.
    return np.require(array, requirements="A")


def _little_endian(content: bytes) -> int:
    return int.from_bytes(content, "little")


def build_encoder(tokenizer: WordPieceTokenizer, weights: Mapping[str, Any]) -> TransformerEncoder:
    """Return an onnxruntime encoder if onnxruntime is installed, otherwise a numpy encoder."""
    try:
        module = import_module("toolcrib.encoder.onnx_backend")
    except ImportError:
        return TransformerEncoder(tokenizer, weights)
    encoder: TransformerEncoder = module.OnnxEncoder(tokenizer, weights)
    return encoder


class DefaultEncoder:
    """Embedder with a transformer for exact vectors and a static encoder for provisional ones.

    `vector_cache` is called in place of `encode_tools` if a program sets it.
    """

    def __init__(self) -> None:
        self.vector_cache: Callable[[Sequence[str]], Array] | None = None
        self._tool_vectors: dict[str, Array] = {}
        self._query_vectors: dict[tuple[str, ...], Array] = {}
        self._probe_outputs: dict[str, Array] = {}

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Return one vector per query. The cache key is the whole batch, because searches repeat it."""
        cache = self._query_vectors
        key = tuple(texts)
        vectors = cache.get(key)
        if vectors is None:
            vectors, probe_outputs = self._encoder.encode_and_probe(_translate_all(texts), self._service_probe)
            vectors.flags.writeable = False
            if len(cache) >= MAX_CACHED_QUERIES:
                cache = self._query_vectors = {}
                self._probe_outputs = {}
            cache[key] = vectors
            # The search calls score_service_names for the same query next.
            self._probe_outputs.update(zip(texts, probe_outputs, strict=True))
        return vectors

    def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
        """Return, for each name in the query, the probability that it names a service."""
        output = self._probe_outputs.get(text)
        if output is None:
            _, (output,) = self._encoder.encode_and_probe(_translate_all([text]), self._service_probe)
        spans = (self._tokenizer.find_token_span(translate_to_english(text), name, MAX_TOKENS) for name in names)
        return [_mean_probability(output[span]) for span in spans]

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """Return one vector per tool text. Cached texts are not encoded again."""
        # Another thread may replace the cache; this reference stays valid.
        cache = self._tool_vectors
        missing = [text for text in dict.fromkeys(texts) if text not in cache]
        encode = self.vector_cache or self.encode_tools
        new = dict(zip(missing, encode(missing), strict=True)) if missing else {}
        vectors = np.array([new[text] if text in new else cache[text] for text in texts])
        if len(cache) + len(new) > MAX_CACHED_TOOLS:
            cache = self._tool_vectors = {}
        cache.update(new)
        return vectors

    def encode_tools(self, texts: Sequence[str]) -> Array:
        """Return one vector per tool text, without any cache."""
        return self._encoder.encode(_translate_all(texts))

    def embed_provisional(self, texts: Sequence[str]) -> Array:
        """Return static embeddings of tools, without running the transformer."""
        return self._static_encoder.embed_tools(_translate_all(texts))

    def clear_cache(self) -> None:
        """Drop all cached vectors."""
        self._tool_vectors, self._query_vectors, self._probe_outputs = {}, {}, {}

    @cached_property
    def version(self) -> str:
        """A hash of the weights and glossaries. Stored vectors are valid for one version."""
        parts = read_checksums("encoder.npz"), glossary_checksum()
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()

    @property
    def uncached(self) -> UncachedEncoder:
        """The same embedder without its caches of tools, for callers that keep the vectors themselves."""
        return UncachedEncoder(self)

    @property
    def static_embedder(self) -> StaticEmbedder:
        """An embedder that uses only the static encoder."""
        return StaticEmbedder(self)

    @cached_property
    def _tokenizer(self) -> WordPieceTokenizer:
        return WordPieceTokenizer(load_vocabulary())

    @cached_property
    def _encoder(self) -> TransformerEncoder:
        return build_encoder(self._tokenizer, self.weights)

    @cached_property
    def weights(self) -> dict[str, NDArray[Any]]:
        """The weights of the transformer."""
        return load_weights("encoder.npz")

    @cached_property
    def _service_probe(self) -> ServiceNameProbe:
        return ServiceNameProbe(**load_weights("service.npz"))

    @cached_property
    def _static_encoder(self) -> StaticEncoder:
        return StaticEncoder(self._tokenizer, load_weights("sketcher.npz"))


class UncachedEncoder:
    """Embedder that encodes a tool each time."""

    def __init__(self, encoder: DefaultEncoder) -> None:
        self.embed_queries = encoder.embed_queries
        self.embed_tools = encoder.encode_tools
        self.embed_provisional = encoder.embed_provisional
        self.score_service_names = encoder.score_service_names


class StaticEmbedder:
    """Embedder that uses static embeddings only: less accurate, a few microseconds per text."""

    def __init__(self, encoder: DefaultEncoder) -> None:
        self._encoder = encoder

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Return one vector per query."""
        return self._encoder._static_encoder.embed_queries(_translate_all(texts))

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """Return one vector per tool text."""
        return self._encoder._static_encoder.embed_tools(_translate_all(texts))


def _translate_all(texts: Sequence[str]) -> list[str]:
    return list(map(translate_to_english, texts))


def _mean_probability(logits: Array) -> float:
    """Return the sigmoid of the mean logit, or 0 if the name lies beyond the token limit."""
    return 1 / (1 + math.exp(-float(logits.mean()))) if len(logits) else 0.0


def read_checksums(name: str) -> str:
    """Return the checksums of the arrays of a shipped file."""
    with (_DATA / name).open("rb") as file, ZipFile(file) as archive:
        return " ".join(f"{entry.filename} {entry.CRC}" for entry in archive.infolist())


def load_weights(name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a shipped file by name."""
    with (_DATA / name).open("rb") as file:
        return load_arrays(file)


DEFAULT_ENCODER = DefaultEncoder()

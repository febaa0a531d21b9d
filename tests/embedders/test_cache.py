from __future__ import annotations

import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.embedders.scripted import WordEmbedder
from toolcrib.embedders.cache import CachedEmbedder, VectorStore, pack_vector, unpack_vectors
from toolcrib.errors import EmbeddingFailed, InvalidCacheFile, InvalidConfig
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.vector_table import normalize_vectors

TEXTS = ["send an email", "read the weather", "resize a picture"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.db"


def test_cached_text_is_not_embedded_again() -> None:
    words = WordEmbedder()
    cached = CachedEmbedder(words, "words")
    first = cached.embed_tools(TEXTS)
    again = cached.embed_tools([TEXTS[2], "new", TEXTS[0]])
    assert words.embedded_texts == [*TEXTS, "new"]
    assert (again[[2, 0]] == first[[0, 2]]).all()


def test_repeated_text_in_one_call_is_embedded_once() -> None:
    words = WordEmbedder()
    rows = CachedEmbedder(words, "words").embed_queries(["mail", "mail"])
    assert words.embedded_texts == ["mail"]
    assert (rows[0] == rows[1]).all()


def test_query_and_tool_vectors_of_one_text_differ() -> None:
    cached = CachedEmbedder(WordEmbedder(), "words")
    assert np.allclose(cached.embed_queries(["mail"]), 2 * cached.embed_tools(["mail"]))


def test_no_texts_give_no_rows() -> None:
    words = WordEmbedder()
    assert len(CachedEmbedder(words, "words").embed_tools([])) == 0
    assert words.embedded_texts == []


def test_least_recently_used_vector_is_evicted() -> None:
    words = WordEmbedder()
    cached = CachedEmbedder(words, "words", capacity=2)
    cached.embed_queries(["a"])
    cached.embed_queries(["b"])
    cached.embed_queries(["a"])
    cached.embed_queries(["c"])
    words.embedded_texts.clear()
    cached.embed_queries(["a", "c"])
    assert words.embedded_texts == []
    cached.embed_queries(["b"])
    assert words.embedded_texts == ["b"]


def test_call_with_more_texts_than_the_capacity() -> None:
    cached = CachedEmbedder(WordEmbedder(), "words", capacity=2)
    assert np.allclose(cached.embed_tools(TEXTS), WordEmbedder().embed_tools(TEXTS), atol=1e-3)


def test_file_returns_the_same_bytes_after_a_restart(path: Path) -> None:
    first = CachedEmbedder(WordEmbedder(), "words", path).embed_tools(TEXTS)
    words = WordEmbedder()
    again = CachedEmbedder(words, "words", path).embed_tools(TEXTS)
    assert words.embedded_texts == []
    assert first.tobytes() == again.tobytes()


def test_stored_vectors_of_all_texts_are_read_at_a_time(path: Path) -> None:
    first = CachedEmbedder(WordEmbedder(), "words", path).embed_tools(TEXTS)
    again = CachedEmbedder(WordEmbedder(), "words", path)
    stored = again.read_stored([*TEXTS, TEXTS[0]])
    assert stored is not None
    assert stored.tobytes() == first[[0, 1, 2, 0]].tobytes()
    assert again.read_stored([*TEXTS, "new"]) is None
    assert again.read_stored([]) is None
    assert CachedEmbedder(WordEmbedder(), "words").read_stored(TEXTS) is None


def test_vectors_are_not_shared_between_names(path: Path) -> None:
    CachedEmbedder(WordEmbedder(), "one", path).embed_tools(TEXTS)
    words = WordEmbedder()
    CachedEmbedder(words, "two", path).embed_tools(TEXTS)
    assert words.embedded_texts == TEXTS


def test_queries_are_not_stored_in_the_file(path: Path) -> None:
    cached = CachedEmbedder(WordEmbedder(), "words", path)
    cached.embed_queries(["a private question"])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (0,)


def test_vectors_computed_before_a_failure_are_stored(path: Path) -> None:
    class Failing(WordEmbedder):
        def embed_tools(self, texts: Sequence[str]) -> Vectors:
            self.is_down = bool(self.embedded_texts)
            return super().embed_tools(texts)

    many = [f"text {number}" for number in range(300)]
    with pytest.raises(EmbeddingFailed):
        CachedEmbedder(Failing(), "words", path).embed_tools(many)
    words = WordEmbedder()
    CachedEmbedder(words, "words", path).embed_tools(many)
    assert words.embedded_texts == many[256:]


def test_file_size_is_limited_and_oldest_vectors_are_deleted(path: Path) -> None:
    store = VectorStore(path, max_vectors=3)
    for number in range(5):
        store.put({bytes([number]): b"vector"})
    assert sorted(store.get([bytes([number]) for number in range(5)])) == [b"\2", b"\3", b"\4"]


def test_get_splits_large_key_lists(path: Path) -> None:
    store = VectorStore(path)
    keys = [number.to_bytes(2, "big") for number in range(1_201)]
    store.put(dict.fromkeys(keys, b"vector"))
    assert len(store.get(keys)) == 1_201


def test_failed_write_is_rolled_back(path: Path) -> None:
    store = VectorStore(path)
    with pytest.raises(InvalidCacheFile):
        store.put({b"good": b"vector", b"bad": None})  # type: ignore[dict-item]
    assert store.get([b"good"]) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no database at all, but long enough to look at", "this is a text file, .*choose another path$"),
        (b"\0" * 4096, "the file is damaged.*delete it"),
    ],
)
def test_file_that_is_not_a_database_is_reported_and_kept(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidCacheFile, match=rf"vectors\.db: {message}"):
        CachedEmbedder(WordEmbedder(), "words", path)
    assert path.read_bytes() == content


def test_database_of_another_program_is_not_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(InvalidCacheFile, match=r"another program.*choose another path"):
        CachedEmbedder(WordEmbedder(), "words", path)
    assert path.read_bytes() == before


def test_file_of_a_newer_version_is_rejected(path: Path) -> None:
    VectorStore(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InvalidCacheFile, match=r"newer version.*delete the file"):
        VectorStore(path)


@pytest.mark.parametrize("place", ["missing/vectors.db", "", "a\0b"])
def test_unwritable_path_is_rejected(tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidCacheFile, match="check that its folder exists"):
        VectorStore(str(tmp_path / place) if "\0" not in place else place)


def test_file_damaged_while_in_use_is_disabled(path: Path) -> None:
    words = WordEmbedder()
    cached = CachedEmbedder(words, "words", path, capacity=1)
    cached.embed_tools(TEXTS)
    path.write_bytes(b"\xffgarbage" * 1000)
    assert np.allclose(cached.embed_tools(TEXTS), WordEmbedder().embed_tools(TEXTS), atol=1e-3)
    assert "delete it" in str(cached.file_error)


def test_file_on_a_full_disk_is_disabled(path: Path) -> None:
    cached = CachedEmbedder(WordEmbedder(), "words", path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON vectors BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
    assert len(cached.embed_tools(TEXTS)) == 3
    assert "the disk is full" in str(cached.file_error)
    assert len(cached.embed_tools(["more"])) == 1


_ODD = b"\0\0\x80\x3fabc"


@pytest.mark.parametrize(
    "damage",
    [
        "zeroblob(length(vector))",
        "zeroblob(0)",
        "'a text, which is no vector'",
        "CAST(x'ff00ff00ff00ff00ff00' AS TEXT)",
        "12345",
        "0.5",
        # An odd number of bytes with a valid checksum.
        f"x'{(zlib.crc32(_ODD).to_bytes(4, 'little') + _ODD).hex()}'",
    ],
)
def test_damaged_vectors_are_replaced(path: Path, damage: str) -> None:
    before = CachedEmbedder(WordEmbedder(), "words", path).embed_tools(TEXTS)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE vectors SET vector = {damage} WHERE id < 3")
    words = WordEmbedder()
    cached = CachedEmbedder(words, "words", path)
    assert (cached.embed_tools(TEXTS) == before).all()
    assert words.embedded_texts == TEXTS[:2]
    assert (cached.damaged_count, cached.file_error) == (2, None)
    repaired = CachedEmbedder(words, "words", path)
    assert (repaired.embed_tools(TEXTS) == before).all()
    assert (repaired.damaged_count, words.embedded_texts) == (0, TEXTS[:2])


def test_file_deleted_while_in_use_is_created_again(path: Path) -> None:
    cached = CachedEmbedder(WordEmbedder(), "words", path, capacity=1)
    cached.embed_tools(TEXTS)
    path.unlink()
    assert len(cached.embed_tools(TEXTS)) == 3
    assert cached.file_error is None
    words = WordEmbedder()
    CachedEmbedder(words, "words", path).embed_tools(TEXTS[:2])
    assert words.embedded_texts == []
    path.unlink()
    VectorStore(path).put({b"key": b"vector"})


def test_locked_file_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = VectorStore(path)
    monkeypatch.setattr("toolcrib.files.sqlite_file.LOCK_TIMEOUT_SECONDS", 0.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidCacheFile, match="another process has locked the file"):
            store.put({b"key": b"vector"})


def test_model_change_under_one_name_is_reported(path: Path) -> None:
    CachedEmbedder(WordEmbedder(32), "words", path).embed_tools(["old"])
    with pytest.raises(EmbeddingFailed, match=r"several widths \(32, 64\).*another name"):
        CachedEmbedder(WordEmbedder(64), "words", path).embed_tools(["old", "new"])


def test_vectors_of_a_changed_model_are_not_stored(path: Path) -> None:
    words = WordEmbedder(32)
    cached = CachedEmbedder(words, "words", path)
    cached.embed_tools(["old"])
    words.width = 64
    for embed in (cached.embed_tools, cached.embed_queries):
        with pytest.raises(EmbeddingFailed, match=r"several widths \(32, 64\).*restart with another name"):
            embed(["new"])
    assert len(CachedEmbedder(WordEmbedder(32), "words", path).embed_tools(["old", "new"])) == 2


def test_embedder_with_too_few_rows_is_reported() -> None:
    class Wrong(WordEmbedder):
        def embed_tools(self, texts: Sequence[str]) -> Vectors:
            return super().embed_tools(texts)[:1]

    with pytest.raises(EmbeddingFailed, match="'words' returned vectors of the shape"):
        CachedEmbedder(Wrong(), "words").embed_tools(TEXTS)


@pytest.mark.parametrize(("name", "capacity"), [("", 1), ("x" * 513, 1), ("words", 0)])
def test_invalid_name_or_capacity_is_rejected(name: str, capacity: int) -> None:
    with pytest.raises(InvalidConfig):
        CachedEmbedder(WordEmbedder(), name, capacity=capacity)


def test_texts_with_special_characters_have_distinct_keys() -> None:
    words = WordEmbedder()
    texts = ["\ud800", "a\nb", "a b", "", "\0"]
    CachedEmbedder(words, "\ud800 ").embed_queries(texts)
    assert words.embedded_texts == texts


def test_threads_share_one_file(path: Path) -> None:
    cached = CachedEmbedder(WordEmbedder(), "words", path, capacity=10)
    batches = [[f"text {number % 40}" for number in range(at, at + 20)] for at in range(30)]
    with ThreadPoolExecutor(8) as pool:
        for batch, rows in zip(batches, pool.map(cached.embed_tools, batches), strict=True):
            assert np.allclose(rows, WordEmbedder().embed_tools(batch), atol=1e-3)
    assert cached.file_error is None


_PROCESS = """
import sys
from toolcrib.embedders.cache import CachedEmbedder
from tests.embedders.scripted import WordEmbedder
cached = CachedEmbedder(WordEmbedder(), "words", sys.argv[1], capacity=1)
for at in range(20):
    cached.embed_tools([f"text {number}" for number in range(at, at + 20)])
print(cached.file_error)
"""


def test_processes_share_one_file(path: Path) -> None:
    command = [sys.executable, "-c", _PROCESS, str(path)]
    root = Path(__file__).parents[2]
    running = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in running] == [b"None"] * 3
    words = WordEmbedder()
    CachedEmbedder(words, "words", path).embed_tools([f"text {number}" for number in range(39)])
    assert words.embedded_texts == []


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=50))
def test_packing_keeps_the_direction_of_a_vector(numbers: list[float]) -> None:
    row = np.array(numbers, np.float32)
    (again,) = unpack_vectors([pack_vector(row)])
    assert np.abs(again - row).max() <= np.abs(row).max() * 2**-11
    if np.abs(row).max() > 1e-20:
        assert normalize_vectors(row / np.abs(row).max()) @ normalize_vectors(again / np.abs(row).max()) > 0.99999

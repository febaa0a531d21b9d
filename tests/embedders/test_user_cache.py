from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.cli.main import toolcrib as toolcrib_command
from toolcrib.embedders.cache import CachedEmbedder, VectorStore, find_cache_folder, hash_text, use_vector_cache
from toolcrib.encoder.default import DEFAULT_ENCODER, DefaultEncoder

TEXTS = ["mail send: Send an email", "files resize: Make a picture smaller"]
SCRIPT = """
import sys
from toolcrib.embedders.cache import use_vector_cache
from toolcrib.encoder.default import DEFAULT_ENCODER
with use_vector_cache(sys.argv[1]):
    for number in range(5):
        DEFAULT_ENCODER.embed_tools([f"tool {sys.argv[2]} {number}", f"shared {number}"])
"""


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    DEFAULT_ENCODER.clear_cache()
    yield
    DEFAULT_ENCODER.clear_cache()


def list_stored(folder: Path, texts: list[str]) -> list[str]:
    """Return the texts whose vectors are in the file of a cache folder."""
    keys = {hash_text(DEFAULT_ENCODER.version, "tool", text): text for text in texts}
    stored = VectorStore(folder / "vectors.db").get(list(keys))
    return [text for key, text in keys.items() if key in stored]


def test_second_process_reads_the_vectors_of_the_first(tmp_path: Path) -> None:
    with use_vector_cache(tmp_path):
        first = DEFAULT_ENCODER.embed_tools(TEXTS)
    assert list_stored(tmp_path, [*TEXTS, "other"]) == TEXTS
    stored = CachedEmbedder(DEFAULT_ENCODER.uncached, DEFAULT_ENCODER.version, tmp_path / "vectors.db")
    found = stored.read_stored(TEXTS)
    assert found is not None
    assert np.array_equal(found, first)


def test_results_do_not_depend_on_the_cache(tmp_path: Path) -> None:
    catalog = Catalog([Tool("send", "Send an email"), Tool("resize", "Make a picture smaller")])

    def search() -> list[tuple[str, float]]:
        DEFAULT_ENCODER.clear_cache()
        result = SearchEngine(catalog).search("write to my boss")
        return [(hit.tool.id, hit.score) for hit in result]

    without = search()
    with use_vector_cache(tmp_path):
        filled = search()
        read = search()
    assert without == filled == read


def test_vectors_of_another_encoder_version_are_not_used(tmp_path: Path) -> None:
    CachedEmbedder(DEFAULT_ENCODER.uncached, "old", tmp_path / "vectors.db").embed_tools(TEXTS)
    assert list_stored(tmp_path, TEXTS) == []
    with use_vector_cache(tmp_path):
        DEFAULT_ENCODER.embed_tools(TEXTS)
    assert list_stored(tmp_path, TEXTS) == TEXTS


def test_processes_can_share_the_file(tmp_path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path), str(n)]) for n in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    texts = [f"tool {n} {number}" for n in range(2) for number in range(5)] + [f"shared {n}" for n in range(5)]
    assert list_stored(tmp_path, texts) == texts


def test_damaged_file_disables_the_cache_and_nothing_else(tmp_path: Path) -> None:
    expected = DEFAULT_ENCODER.embed_tools(TEXTS)
    DEFAULT_ENCODER.clear_cache()
    (tmp_path / "vectors.db").write_bytes(b"this is not a database" * 100)
    with use_vector_cache(tmp_path):
        assert (DEFAULT_ENCODER.embed_tools(TEXTS) == expected).all()


def test_file_that_is_damaged_later_disables_the_cache(tmp_path: Path) -> None:
    with use_vector_cache(tmp_path):
        expected = DEFAULT_ENCODER.embed_tools(TEXTS)
        DEFAULT_ENCODER.clear_cache()
        (tmp_path / "vectors.db").write_bytes(b"this is not a database" * 100)
        assert (DEFAULT_ENCODER.embed_tools(TEXTS) == expected).all()


def test_folder_that_cannot_be_created_disables_the_cache(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with use_vector_cache(blocked / "folder"):
        assert len(DEFAULT_ENCODER.embed_tools(TEXTS)) == 2


def test_nested_contexts_restore_the_outer_cache(tmp_path: Path) -> None:
    assert DefaultEncoder().vector_cache is None
    with use_vector_cache(tmp_path / "a"):
        outer = DEFAULT_ENCODER.vector_cache
        with use_vector_cache(tmp_path / "b"):
            assert DEFAULT_ENCODER.vector_cache is not outer
        assert DEFAULT_ENCODER.vector_cache is outer
    assert DEFAULT_ENCODER.vector_cache is not outer


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({"TOOLCRIB_CACHE": "off"}, "linux", None),
        ({"TOOLCRIB_CACHE": "/data/cache", "XDG_CACHE_HOME": "/x"}, "linux", Path("/data/cache")),
        ({"XDG_CACHE_HOME": "/x"}, "linux", Path("/x/toolcrib")),
        ({"XDG_CACHE_HOME": "relative"}, "linux", Path.home() / ".cache" / "toolcrib"),
        ({}, "linux", Path.home() / ".cache" / "toolcrib"),
        ({}, "darwin", Path.home() / "Library" / "Caches" / "toolcrib"),
        ({"LOCALAPPDATA": str(Path("C:") / "Local")}, "win32", Path("C:") / "Local" / "toolcrib"),
    ],
)
def test_cache_folder_follows_the_platform(environment: dict[str, str], platform: str, expected: Path | None) -> None:
    assert find_cache_folder(environment, platform) == expected


def test_commands_that_search_use_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "tools.jsonl"
    file.write_text('{"name": "send", "description": "Send an email", "input_schema": {}}\n')
    result = CliRunner().invoke(toolcrib_command, ["search", "write to my boss", "--catalog", str(file)])
    assert result.exit_code == 0, result.output
    assert DEFAULT_ENCODER.vector_cache is None
    assert list_stored(tmp_path / "cache", ["send: Send an email"]) == ["send: Send an email"]

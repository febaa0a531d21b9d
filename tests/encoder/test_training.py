from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path

import pytest


def test_checkpoint_is_computed_once_and_written_atomically(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the dependency group `train`")
    checkpoint = import_module("training.checkpoint")
    kept, save = checkpoint.kept, checkpoint.save
    file = tmp_path / "made.pt"
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return [2, 3]

    assert kept(file, make) == kept(file, make) == [2, 3]
    assert made == [1]
    with pytest.raises(Exception, match="pickle"):
        save(file, lambda: None)
    assert kept(file, make) == [2, 3]


def test_published_queries_have_the_documented_checksum() -> None:
    folder = Path(__file__).parents[2] / "training"
    digest = hashlib.sha256((folder / "queries.jsonl").read_bytes()).hexdigest()
    assert f"| `queries.jsonl` | `{digest}` |" in (folder / "DATA.md").read_text(encoding="utf-8")

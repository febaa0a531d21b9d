"""The training that can be stopped and gone on with: what it keeps on disk."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest


def test_what_was_made_is_made_once_and_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
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

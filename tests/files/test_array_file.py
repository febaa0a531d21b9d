"""Arrays in a file are read as they were written, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcrib.files.array_file import ArrayFile

ARRAYS: dict[str, NDArray[Any]] = {
    "numbers": np.arange(1_000, dtype=np.int32),
    "rows": np.ones((5, 3), np.float32),
    "none": np.empty(0),
}


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "index.npz"
    assert ArrayFile(path, "1").read() is None
    ArrayFile(path, "1").write({"old": np.zeros(3)})
    ArrayFile(path, "1").write(ARRAYS)
    found = ArrayFile(path, "1").read()
    assert found is not None
    assert {name: array.tobytes() for name, array in found.items() if name in ARRAYS} == {
        name: array.tobytes() for name, array in ARRAYS.items()
    }
    assert "old" not in found
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_file_with_another_stamp_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "index.npz"
    ArrayFile(path, "model 1").write(ARRAYS)
    assert ArrayFile(path, "model 2").read() is None


def test_damaged_file_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "index.npz"
    ArrayFile(path, "1").write(ARRAYS)
    content = path.read_bytes()
    for at in range(0, len(content), 97):
        damaged = bytearray(content)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        found = ArrayFile(path, "1").read()
        assert found is None or all(found[name].tobytes() == array.tobytes() for name, array in ARRAYS.items())
    for part in (b"", content[:100], content[: len(content) // 2], b"x" * 1_000):
        path.write_bytes(part)
        assert ArrayFile(path, "1").read() is None


def test_objects_in_a_file_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "index.npz"
    np.savez(path, stamp=np.array([{"a": 1}], object))
    assert ArrayFile(path, "1").read() is None


def test_file_that_cannot_be_written_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    ArrayFile(tmp_path / "file" / "index.npz", "1").write(ARRAYS)
    assert "the next start takes longer" in caplog.text

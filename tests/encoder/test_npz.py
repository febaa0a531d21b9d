from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcrib.encoder.default import load_arrays

SAVED: dict[str, NDArray[Any]] = {
    "words": np.arange(30_000, dtype=np.int8).reshape(300, 100),
    "scale": np.linspace(0, 1, 300, dtype=np.float32),
    "across": np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
    "layers": np.array(6),
    "nothing": np.empty((0, 4), np.float32),
}


def _check(arrays: dict[str, NDArray[Any]]) -> None:
    assert arrays.keys() == SAVED.keys()
    for name, saved in SAVED.items():
        assert arrays[name].dtype == saved.dtype
        assert arrays[name].flags.aligned
        np.testing.assert_array_equal(arrays[name], saved)


def test_arrays_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, **SAVED)  # type: ignore[arg-type]
    with path.open("rb") as file:
        arrays = load_arrays(file)
    _check(arrays)


def test_arrays_are_read_from_a_stream_without_a_file() -> None:
    content = BytesIO()
    np.savez(content, **SAVED)  # type: ignore[arg-type]
    content.seek(0)
    _check(load_arrays(content))


def test_large_arrays_are_mapped_read_only(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, **SAVED)  # type: ignore[arg-type]
    with path.open("rb") as file:
        words = load_arrays(file)["words"]
    assert not words.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        words[0, 0] = 1

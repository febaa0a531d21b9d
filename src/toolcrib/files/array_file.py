"""Arrays in a file, for an index that takes long to build."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.files.atomic_write import write_file_atomically

_STAMP: Final = "stamp"
_log = logging.getLogger(__name__)


class ArrayFile:
    """Named arrays in one file that only its owner can read.

    The file can be deleted at any time. One that is damaged or has another `stamp`, which names what the arrays
    depend on, is not used, and the next `write` replaces it.
    """

    def __init__(self, path: Path, stamp: str) -> None:
        self._path = path
        self._stamp = np.frombuffer(stamp.encode(), np.uint8)

    def read(self) -> dict[str, NDArray[Any]] | None:
        """Return the arrays, whose checksums are verified; None if the file does not exist or can't be used."""
        try:
            with self._path.open("rb") as source, np.load(source, allow_pickle=False) as file:
                is_current = np.array_equal(file[_STAMP], self._stamp)
                return {name: file[name] for name in file.files} if is_current else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
            _log.warning("%s is damaged and not used: %s", self._path, error)
            return None

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the file in one step. If that fails, for example because the disk is full, the old one stays."""

        def save(file: IO[bytes]) -> None:
            # The type hints of `savez` read the name of any array as its option `allow_pickle`.
            np.savez(file, **{**arrays, _STAMP: self._stamp})  # type: ignore[arg-type]

        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_file_atomically(self._path, save, mode=0o600)
        except OSError as error:
            _log.warning("%s cannot be written, so the next start takes longer: %s", self._path, error)

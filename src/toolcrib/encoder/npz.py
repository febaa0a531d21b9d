"""The arrays of an `.npz` file, looked at where they lie instead of being read into memory.

Whoever asks one question needs a few rows of the largest of them, and starts sooner for it.
"""

from __future__ import annotations

import mmap
from ast import literal_eval
from typing import IO, Any, Final
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

# Of the header before each entry: how long it is, and where it says how long its name and extra are.
_HEADER_BYTES: Final = 30
_LENGTHS: Final = (slice(26, 28), slice(28, 30))
# Of an array: where it says how long its head is, which tells what is in it and follows at once.
_HEAD_LENGTH: Final = slice(8, 10)


def load_arrays(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a file that was written without compression, by name. They do not change."""
    data = _map_file(file)
    with ZipFile(file) as entries:
        places = {
            one.filename.removesuffix(".npy"): one.header_offset for one in entries.infolist()
        }
    return {name: _array_at(data, place) for name, place in places.items()}


def _map_file(file: IO[bytes]) -> mmap.mmap | bytes:
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        # No file of its own, such as one inside of an archive.
        content = file.read()
        file.seek(0)
        return content


def _array_at(data: mmap.mmap | bytes, place: int) -> NDArray[Any]:
    header = data[place : place + _HEADER_BYTES]
    start = place + _HEADER_BYTES + sum(_little_endian(header[at]) for at in _LENGTHS)
    head_at = start + _HEAD_LENGTH.stop
    numbers_at = head_at + _little_endian(data[start:head_at][_HEAD_LENGTH])
    told = literal_eval(data[head_at:numbers_at].decode("latin-1"))
    flat = np.frombuffer(data, np.dtype(told["descr"]), int(np.prod(told["shape"])), numbers_at)
    shaped = flat.reshape(told["shape"], order="F" if told["fortran_order"] else "C")
    # Numbers of several bytes may lie where the processor cannot take them; those are few, and copied.
    return np.require(shaped, requirements="A")


def _little_endian(content: bytes) -> int:
    return int.from_bytes(content, "little")

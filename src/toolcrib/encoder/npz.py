"""Read the arrays of an `.npz` file through a memory map.

A single query needs only a few rows of the largest array, so mapping makes the first search faster.
"""

from __future__ import annotations

import mmap
from ast import literal_eval
from typing import IO, Any, Final
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

# Layout of a ZIP local file header: its fixed size, and the lengths of the name and extra fields.
_ZIP_HEADER_BYTES: Final = 30
_ZIP_LENGTH_FIELDS: Final = (slice(26, 28), slice(28, 30))
# Layout of the .npy format: the length of its header, which follows directly.
_NPY_HEADER_LENGTH: Final = slice(8, 10)


def load_arrays(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an uncompressed `.npz` file by name. The arrays are read-only."""
    data = _map_file(file)
    with ZipFile(file) as archive:
        offsets = {
            entry.filename.removesuffix(".npy"): entry.header_offset for entry in archive.infolist()
        }
    return {name: _array_at(data, offset) for name, offset in offsets.items()}


def _map_file(file: IO[bytes]) -> mmap.mmap | bytes:
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        # Not a file on disk, for example a member of a zipped package.
        content = file.read()
        file.seek(0)
        return content


def _array_at(data: mmap.mmap | bytes, offset: int) -> NDArray[Any]:
    zip_header = data[offset : offset + _ZIP_HEADER_BYTES]
    start = offset + _ZIP_HEADER_BYTES
    start += sum(_little_endian(zip_header[field]) for field in _ZIP_LENGTH_FIELDS)
    header_at = start + _NPY_HEADER_LENGTH.stop
    values_at = header_at + _little_endian(data[start:header_at][_NPY_HEADER_LENGTH])
    header = literal_eval(data[header_at:values_at].decode("latin-1"))
    shape = header["shape"]
    flat = np.frombuffer(data, np.dtype(header["descr"]), int(np.prod(shape)), values_at)
    array = flat.reshape(shape, order="F" if header["fortran_order"] else "C")
    # Unaligned arrays are copied; the large ones hold single bytes and are always aligned.
    return np.require(array, requirements="A")


def _little_endian(content: bytes) -> int:
    return int.from_bytes(content, "little")

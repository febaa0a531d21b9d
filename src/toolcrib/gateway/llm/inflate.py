"""Bodies that were made smaller on the way, made as they were."""

from __future__ import annotations

import zlib
from typing import Final

from toolcrib.errors import RequestFailed

# What a few bytes can grow to is handed on in parts of this size.
PART_BYTES: Final = 1 << 20

_GZIP: Final = zlib.MAX_WBITS | 16


class Inflater:
    """Reads one encoding: `gzip` or `deflate`."""

    KNOWN: Final = frozenset({"gzip", "x-gzip", "deflate"})

    def __init__(self, encoding: str) -> None:
        self._may_be_raw = encoding == "deflate"
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS if self._may_be_raw else _GZIP)

    @property
    def has_more(self) -> bool:
        """Whether there is more to be had without new bytes."""
        return bool(self._inflate.unconsumed_tail) and not self._inflate.eof

    def feed(self, data: bytes) -> bytes:
        """What the next bytes say, as far as it is not too much at once."""
        try:
            whole = self._decompressed(self._inflate.unconsumed_tail + data)
        except zlib.error as fault:
            raise RequestFailed(f"the upstream's answer cannot be read: {fault}", 502) from fault
        self._may_be_raw = False
        return whole

    def _decompressed(self, data: bytes) -> bytes:
        if not self._may_be_raw:
            return self._inflate.decompress(data, PART_BYTES)
        try:
            return self._inflate.decompress(data, PART_BYTES)
        except zlib.error:
            # Many send it without the two bytes that should come first.
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._inflate.decompress(data, PART_BYTES)

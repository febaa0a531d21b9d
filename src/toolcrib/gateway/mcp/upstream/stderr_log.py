"""The standard error of each server in a separate file, next to the store."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolcrib.core.tool_names import safe_name

# A file that reaches this size is renamed to `….log.1`, which replaces the previous one.
MAX_LOG_BYTES: Final = 1024 * 1024


class ServerLogFile:
    """Appends lines to a file that only its owner can read. Errors, such as a full disk, are ignored."""

    def __init__(self, folder: Path, server: str) -> None:
        self.path = folder / f"{safe_name(server)}.log"

    def write_line(self, line: str) -> None:
        """Append a line with the time."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size >= MAX_LOG_BYTES:
                self.path.replace(self.path.with_suffix(".log.1"))
            moment = time.strftime("%Y-%m-%d %H:%M:%S")
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(f"{moment} {line}\n")

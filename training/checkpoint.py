"""What a run has done, kept on disk: a run that was stopped goes on where it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def kept(file: Path, make: Callable[[], Any]) -> Any:
    """What an earlier run has left in a file; else it is made now, and left there."""
    if not file.exists():
        save(file, make())
    return torch.load(file)


def save(file: Path, made: Any) -> None:
    """Write a file whole, or not at all."""
    part = file.with_suffix(".part")
    torch.save(made, part)
    part.replace(file)

"""Save the steps of a run, so that an interrupted run can continue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def load_or_compute(file: Path, compute: Callable[[], Any]) -> Any:
    """Return the content of a file. If it does not exist, compute and write it."""
    if not file.exists():
        save(file, compute())
    return torch.load(file)


def save(file: Path, value: Any) -> None:
    """Write a file atomically."""
    part = file.with_suffix(".part")
    torch.save(value, part)
    part.replace(file)

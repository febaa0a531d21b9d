"""Golden vectors: recorded answers of the emulated systems, stored outside this repository.

They are read from the folder in TOOLCRIB_GOLDEN, or from `shared/golden` next to the repository.
Without the folder, the tests that need it are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

_DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "golden"
GOLDEN_FOLDER = Path(os.environ.get("TOOLCRIB_GOLDEN") or _DEFAULT_FOLDER)


def load_golden(name: str) -> dict[str, Any]:
    """Return the content of one system's golden file; skip the running test if it is missing."""
    path = GOLDEN_FOLDER / f"{name}.json"
    if not path.is_file():
        pytest.skip(_skip_reason(path))
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def golden_vectors(name: str, *keys: str) -> list[ParameterSet]:
    """Return one test case per item of a list in a golden file, for parametrize.

    If the file is missing, return one skipped case, so that the module can be collected.
    """
    path = GOLDEN_FOLDER / f"{name}.json"
    if not path.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason=_skip_reason(path)), id="missing")]
    found: Any = load_golden(name)
    for key in keys:
        found = found.get(key, {})
    return [
        pytest.param(vector, id=str(vector.get("id", f"{'-'.join(keys)}-{number}")))
        for number, vector in enumerate(found, 1)
    ]


def _skip_reason(path: Path) -> str:
    return f"no golden file {path}; set TOOLCRIB_GOLDEN to the folder that holds it"

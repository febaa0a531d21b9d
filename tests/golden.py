"""The golden vectors: what the known systems answered, kept outside this repository.

They are read from the folder named by TOOLCRIB_GOLDEN, else from `shared/golden` beside the
repository. Where the folder is missing the tests that need it are skipped, and say so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

_BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "golden"
GOLDEN_FOLDER = Path(os.environ.get("TOOLCRIB_GOLDEN") or _BESIDE_THE_REPOSITORY)


def load_golden(name: str) -> dict[str, Any]:
    """One system's golden file; without it the running test is skipped."""
    path = GOLDEN_FOLDER / f"{name}.json"
    if not path.is_file():
        pytest.skip(_missing(path))
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def golden_vectors(name: str, *keys: str) -> list[ParameterSet]:
    """The list under these keys of a golden file, one test case each, to parametrize with.

    Without the file this is one case that is skipped, so that a module still collects.
    """
    path = GOLDEN_FOLDER / f"{name}.json"
    if not path.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason=_missing(path)), id="missing")]
    found: Any = load_golden(name)
    for key in keys:
        found = found.get(key, {})
    return [
        pytest.param(vector, id=str(vector.get("id", f"{'-'.join(keys)}-{number}")))
        for number, vector in enumerate(found, 1)
    ]


def _missing(path: Path) -> str:
    return f"no golden file {path}; set TOOLCRIB_GOLDEN to the folder that holds it"

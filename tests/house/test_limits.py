"""The tables of limits in the documentation show the constants of the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "reference" / name for name in ("limits.md", "mcp-gateway.md")]
_CELL = re.compile(r"^`([a-z_.]+)\.([A-Z][A-Z0-9_]*(?:\.[a-z_]+)?)`$")
_VALUE = re.compile(r"([\d.,]*\d)(?: (KiB|MiB|GiB))?")
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _rows(page: Path) -> list[tuple[str, str, str]]:
    """Return module, constant and value of every table row that names a constant."""
    rows = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) >= 3 and (found := _CELL.match(cells[1])):
            rows.append((found[1], found[2], cells[2]))
    return rows


def _constant(module: str, name: str) -> Any:
    value: Any = import_module(f"toolcrib.{module}")
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_has_the_value_of_its_constant(page: Path) -> None:
    rows = _rows(page)
    assert len(rows) >= 10
    for module, name, text in rows:
        found = _VALUE.match(text)
        assert found, f"{module}.{name}: {text!r} does not start with a number"
        written = float(found[1].replace(",", "")) * _UNITS[found[2] or ""]
        assert written == pytest.approx(_constant(module, name)), f"{module}.{name}: {text}"

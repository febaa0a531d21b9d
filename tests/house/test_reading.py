"""Bounds for how the package reads. Lower them when the code gets better.

Only `MAX_LINES` and `MAX_MODULES` grow, with a new capability: 0.2 had 38,000 lines, 0.3 adds the console, code mode,
results under control, translation of LLM APIs and five frameworks, 0.4 adds PostgreSQL, replicas, OpenAPI servers and
example requests.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.house.reading import Figures, measure

ROOT = Path(__file__).parents[2]
MAX_LINES = 61_930
MAX_MODULES = 355
MAX_MODULES_PER_FOLDER = 16
# House idioms per 10,000 words of docstrings and comments.
MAX_IDIOMS = {"src/toolcrib": 7, "tests": 4, "benchmarks": 3, "training": 5}
MIN_RETURNS = 200
MAX_PARTICIPLES = 0.002
MAX_PARTICIPLES_ELSEWHERE = 0.01


@cache
def measure_folder(folder: str) -> Figures:
    return measure(ROOT / folder)


@pytest.fixture
def package() -> Figures:
    return measure_folder("src/toolcrib")


def test_package_stays_small(package: Figures) -> None:
    assert package.lines <= MAX_LINES
    assert package.modules <= MAX_MODULES


def test_no_folder_has_too_many_modules(package: Figures) -> None:
    wide = {str(folder): count for folder, count in package.folders.items()}
    assert {folder: n for folder, n in wide.items() if n > MAX_MODULES_PER_FOLDER} == {}


def test_class_names_are_unique(package: Figures) -> None:
    assert package.shared_class_names == []


def test_functions_are_not_named_by_a_participle(package: Figures) -> None:
    assert len(package.participles) <= MAX_PARTICIPLES * package.functions, package.participles


def test_docstrings_say_what_functions_return(package: Figures) -> None:
    assert package.per_10_000_words(package.returns) >= MIN_RETURNS


@pytest.mark.parametrize(("folder", "most"), MAX_IDIOMS.items())
def test_prose_has_few_house_idioms(folder: str, most: int) -> None:
    figures = measure_folder(folder)
    assert figures.per_10_000_words(figures.idioms) <= most


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "training"])
def test_names_outside_the_package_are_plain_too(folder: str) -> None:
    figures = measure_folder(folder)
    assert figures.shared_class_names == []
    assert len(figures.participles) <= MAX_PARTICIPLES_ELSEWHERE * figures.functions, figures.participles


def test_measuring_counts_names_and_prose(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('class A:\n    """Told by somebody."""\n\n    def kept(self): ...\n')
    (tmp_path / "b.py").write_text("class _A:\n    # Return whatever is said.\n    x = 1\n")
    figures = measure(tmp_path)
    assert figures.shared_class_names == ["A"]
    assert figures.participles == ["kept"]
    assert (figures.idioms, figures.returns, figures.words) == (3, 1, 7)
    assert figures.folders == {Path(): 2}

"""Check that the framework pages contain the tested examples."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/with_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_page_contains_the_example(example: Path) -> None:
    slug = example.stem.removeprefix("with_").replace("_", "-")
    page = (ROOT / "docs" / "how-to" / f"{slug}.md").read_text(encoding="utf-8")
    assert f"```python\n{example.read_text(encoding='utf-8')}```" in page


def test_there_is_an_example_for_every_framework() -> None:
    frameworks = {path.stem for path in ROOT.glob("src/toolcrib/frameworks/*.py")}
    named = {f"with_{name}" for name in frameworks - {"__init__", "langchain_model", "tool_index"}}
    assert {path.stem for path in EXAMPLES} == named

"""Rules for the whole package: public names, module sizes and imports."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import toolcrib
from toolcrib.search.engine import RANKERS

ROOT = Path(__file__).parents[2]
MAX_MODULE_LINES = 500


def test_package_exports_the_expected_names() -> None:
    assert toolcrib.__all__ == [
        "Activation",
        "Agent",
        "AgentFinished",
        "AgentUnfinished",
        "CallRefused",
        "CallResult",
        "Catalog",
        "Disclosure",
        "DuplicateTool",
        "Explanation",
        "Hit",
        "InvalidConfig",
        "InvalidQuery",
        "InvalidTool",
        "MatchReason",
        "Registry",
        "SearchEngine",
        "SearchResult",
        "Selection",
        "Session",
        "TextDelta",
        "Tool",
        "ToolAnswered",
        "ToolCalled",
        "Toolcrib",
        "ToolcribError",
        "ToolcribSession",
        "UnknownTool",
        "Where",
        "allow_all",
        "estimate_tokens",
        "read_catalog_file",
        "tools_from_any",
        "use_vector_cache",
    ]
    for name in toolcrib.__all__:
        assert getattr(toolcrib, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        getattr(toolcrib, "Nothing")  # noqa: B009


def test_dir_and_help_show_the_lazy_names() -> None:
    assert set(toolcrib.__all__) <= set(dir(toolcrib))
    text = pydoc.plain(pydoc.render_doc(toolcrib))
    assert "class SearchEngine" in text and "Return the best `limit` tools for a query" in text


def test_no_module_exceeds_the_line_limit() -> None:
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= MAX_MODULE_LINES, f"{path.relative_to(ROOT)} has {lines} lines"


_IO_MODULES = ["asyncio", "click", "http.client", "socket", "sqlite3", "ssl", "subprocess"]
_SCRIPT = """
import sys, numpy
before = set(sys.modules)
from toolcrib import Catalog, SearchEngine, Tool
SearchEngine(Catalog([Tool('a', 'send mail')])).search('mail')
print(*sorted(set(sys.modules) - before))
"""


def test_search_imports_no_io_modules() -> None:
    printed = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True).stdout
    imported = printed.split()
    assert "toolcrib.search.engine" in imported
    assert not set(imported) & set(_IO_MODULES)


def test_importing_the_package_does_not_import_numpy() -> None:
    script = "import sys; import toolcrib; print('numpy' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


def test_syntax_of_a_ranker_matches_the_protocol_for_pyright() -> None:
    # Pyright does not accept a ClassVar for a property of a protocol.
    for ranker in RANKERS.values():
        assert "ClassVar" not in str(type(ranker).__annotations__.get("syntax"))

"""One engine per file. Only the process that measures an engine imports it."""

from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

OURS = "toolcrib"


class Entry(NamedTuple):
    """The title of an engine in tables, its package and its import statement."""

    title: str
    package: str
    statement: str

    @property
    def version(self) -> str | None:
        """The installed version, empty for the standard library, None if it is missing."""
        try:
            return version(self.package) if self.package else ""
        except PackageNotFoundError:
            return None

    @property
    def full_title(self) -> str:
        """The title with the version."""
        return f"{self.title} {self.version}" if self.version else self.title


ROSTER: dict[str, Entry] = {
    OURS: Entry("**Toolcrib**, lexical", "toolcrib", "from toolcrib import Catalog, SearchEngine"),
    "fastmcp": Entry(
        "FastMCP BM25SearchTransform", "fastmcp", "from fastmcp.server.transforms.search import BM25SearchTransform"
    ),
    "pydantic_ai": Entry(
        "Pydantic AI ToolSearch()", "pydantic-ai-slim", "from pydantic_ai.capabilities import ToolSearch"
    ),
    "pydantic_ai_keywords": Entry(
        "Pydantic AI strategy='keywords'", "pydantic-ai-slim", "from pydantic_ai.capabilities import ToolSearch"
    ),
    "shipit": Entry("shipit, SequenceMatcher", "", "import difflib"),
    "rank_bm25": Entry("rank_bm25", "rank-bm25", "import rank_bm25"),
    "bm25s": Entry("bm25s, numpy", "bm25s", "import bm25s"),
    "fts5": Entry("SQLite FTS5", "", "import sqlite3"),
    "tantivy": Entry("Tantivy, 4 fields", "tantivy", "import tantivy"),
}

"""Every error Toolcrib raises on purpose.

    ToolcribError
    ├── InvalidTool          a tool definition that cannot be used
    │   └── InvalidSchema    … because of its JSON Schema
    ├── DuplicateTool        two tools of one catalog share an id
    ├── UnknownTool          a tool was asked for that the catalog does not have
    ├── InvalidQuery         a question that cannot be read
    │   ├── InvalidPattern   … because it is not a valid regular expression
    │   └── QueryTooLong     … because it is over the stated limit
    ├── InvalidLimit         a limit or offset out of range
    ├── SearchTimeout        a search went over its time budget
    ├── InvalidConfig        a configuration that cannot be used
    ├── InvalidMessage       a reply or a message history that cannot be read
    └── InvalidCatalogFile   a catalog file that cannot be read; names line and field

Nothing found is not an error: it is a `SearchResult` without hits.
"""

from __future__ import annotations


class ToolcribError(Exception):
    """The root: catch this to catch everything Toolcrib raises on purpose."""


class InvalidTool(ToolcribError):
    """A tool definition that cannot be used."""


class InvalidSchema(InvalidTool):
    """A JSON Schema that cannot be used."""


class DuplicateTool(ToolcribError):
    """Two tools of one catalog share an id."""


class UnknownTool(ToolcribError):
    """A tool was asked for that the catalog does not have."""


class InvalidQuery(ToolcribError):
    """A question that cannot be read. `position` is the offending character's, where known."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class InvalidPattern(InvalidQuery):
    """Not a valid regular expression."""


class QueryTooLong(InvalidQuery):
    """The query is over the stated limit."""


class InvalidLimit(ToolcribError):
    """A limit or offset out of range."""


class SearchTimeout(ToolcribError):
    """A search went over its time budget."""


class InvalidConfig(ToolcribError):
    """A configuration that cannot be used."""


class InvalidMessage(ToolcribError):
    """A reply or a message history that cannot be read."""


class InvalidCatalogFile(ToolcribError):
    """A catalog file that cannot be read."""

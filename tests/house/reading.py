"""Measure how a Python package reads: names, prose, sizes."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Phrases that made the documentation hard to read. They are fine once; they are not fine everywhere.
_IDIOMS = re.compile(
    r"\b(told|tells? (?:of|it|them|whether|which|what)|nobody|somebody|whoever|who asks|anew|so many"
    r"|is none|are none|none of (?:its|them) |whose own|as a whole|by itself|beside|at once|for ever"
    r"|what is said|is said|says|said|puts? away|mend(?:s|ed)?|is there|stands? (?:for|in|there|at)"
    r"|as it stands|not to be|no more than|is no|are no|is not to|the like|thereof|in turn"
    r"|rather like|goes on|going on|gone on|told apart|of its own)\b",
    re.IGNORECASE,
)
_PARTICIPLE = re.compile(
    r"_*(told|said|kept|held|made|found|known|meant|shown|given|sent|written|taken|begun|gone|left"
    r"|seen|heard|drawn|[a-z]+ed)"
)
_RETURNS = re.compile(r"\breturns?\b", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Figures:
    """The figures of one package."""

    lines: int = 0
    modules: int = 0
    functions: int = 0
    words: int = 0
    idioms: int = 0
    returns: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    participles: list[str] = field(default_factory=list)
    folders: Counter[Path] = field(default_factory=Counter)

    def per_10_000_words(self, count: int) -> float:
        """Return a count of phrases relative to the amount of prose."""
        return 10_000 * count / max(self.words, 1)

    @property
    def shared_class_names(self) -> list[str]:
        """Return the class names that are defined more than once."""
        return sorted(name for name, count in self.classes.items() if count > 1)


def measure(root: Path) -> Figures:
    """Return the figures of all modules below a folder."""
    figures = Figures()
    for path in sorted(root.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        figures.modules += 1
        figures.lines += source.count("\n")
        if path.name != "__init__.py":
            figures.folders[path.parent.relative_to(root)] += 1
        _count_names(figures, tree)
        for text in _prose(source, tree):
            figures.words += len(text.split())
            figures.idioms += len(_IDIOMS.findall(text))
            figures.returns += len(_RETURNS.findall(text))
    return figures


def _count_names(figures: Figures, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            figures.classes[node.name.lstrip("_")] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            figures.functions += 1
            if _PARTICIPLE.fullmatch(node.name):
                figures.participles.append(node.name)


def _prose(source: str, tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")

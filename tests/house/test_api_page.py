"""The API page has every public name, with its signature."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import toolcrib
from toolcrib import SearchEngine

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
_SIGNATURES = re.findall(r"^```text\n((?:await )?[\w.]+\(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)


def _find(name: str) -> Any:
    """Return what a signature on the page is about: a public name, a method of the engine, or a path."""
    module, _, last = name.rpartition(".")
    if module:
        return getattr(import_module(module), last)
    return getattr(toolcrib, name) if name in toolcrib.__all__ else getattr(SearchEngine, name)


def _parse(signature: str) -> tuple[str, list[tuple[str, bool, str | None]]]:
    """Return the name, and each parameter with whether it is keyword-only and its default."""
    path, _, rest = signature.removeprefix("await ").partition("(")
    [function] = ast.parse(f"def f({rest}: ...").body
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    parameters = [
        *((parameter, False, default) for parameter, default in zip(positional, defaults, strict=True)),
        *(
            (parameter, True, default)
            for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ),
    ]
    return path, [
        (one.arg, is_keyword, ast.unparse(default) if default else None) for one, is_keyword, default in parameters
    ]


def test_the_page_has_signatures() -> None:
    assert len(_SIGNATURES) > 15


@pytest.mark.parametrize("signature", _SIGNATURES, ids=lambda text: text.partition("(")[0])
def test_every_signature_is_that_of_the_code(signature: str) -> None:
    path, documented = _parse(signature)
    actual = [
        one
        for one in inspect.signature(_find(path)).parameters.values()
        if one.name != "self" and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    assert [(name, is_keyword) for name, is_keyword, _ in documented] == [
        (one.name, one.kind is one.KEYWORD_ONLY) for one in actual
    ]
    for (name, _, default), one in zip(documented, actual, strict=True):
        assert (default is None) == (one.default is one.empty), name
        if default and isinstance(one.default, str | int | float | tuple | None):
            assert ast.literal_eval(default) == one.default, name


@pytest.mark.parametrize("name", toolcrib.__all__)
def test_every_public_name_is_described(name: str) -> None:
    prose = re.sub(r"^```python.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert re.search(rf"`(?:[\w.]+\.)?{name}[`(]|^#+ {name}$|^{name}\(|├── {name}$", prose, re.MULTILINE), name

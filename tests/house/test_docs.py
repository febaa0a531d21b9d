"""The documentation is correct: snippets run, links resolve, help texts match the commands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import toolcrib
from tests.support.scripted_page import run_page_model
from toolcrib.config.fields import collect_required_variables
from toolcrib.config.jsonc import parse_jsonc
from toolcrib.config.parser import KNOWN_KEYS, parse_config

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "training/*.md") for page in ROOT.glob(pattern)
)

_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_JSON = re.compile(r"^ *```jsonc?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_HELP = re.compile(r"^<!-- help: (.*?) -->\n+```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NEEDS = re.compile(r"^<!-- needs: (\S+) -->$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# The README is shown on package indexes too, so its links to files of this repository are absolute.
_OWN_PREFIXES = (
    "https://github.com/toolcrib/toolcrib/blob/main/",
    "https://raw.githubusercontent.com/toolcrib/toolcrib/main/",
)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [p for p in PAGES if _PYTHON.search(_read(p))], ids=_name)
def test_every_python_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in _NEEDS.findall(_read(page)):
        pytest.importorskip(module, reason=f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "docs"}
    with run_page_model(_read(page), monkeypatch):
        for number, block in enumerate(_PYTHON.findall(_read(page)), 1):
            exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


def _configurations(page: Path) -> list[dict[str, Any]]:
    """Return the JSON blocks of a page that have a key of toolcrib.json."""
    blocks = [parse_jsonc(page.name, block).value for block in _JSON.findall(_read(page))]
    return [one for one in blocks if isinstance(one, dict) and one.keys() & set(KNOWN_KEYS)]


@pytest.mark.parametrize("page", [p for p in PAGES if _configurations(p)], ids=_name)
def test_every_configuration_is_valid(page: Path) -> None:
    for document in _configurations(page):
        names = collect_required_variables(document)
        # Valid also as an encryption key.
        parse_config(document, {name: urlsafe_b64encode(sha256(name.encode()).digest()).decode() for name in names})


def test_readme_shows_a_configuration() -> None:
    assert _configurations(ROOT / "README.md")


def test_readme_links_work_on_a_package_index() -> None:
    links = _LINK.findall(_FENCED.sub("", _read(ROOT / "README.md")))
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(_FENCED.sub("", _read(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_resolves(page: Path) -> None:
    for link in _LINK.findall(_FENCED.sub("", _read(page))):
        folder = page.parent
        for prefix in _OWN_PREFIXES:
            if link.startswith(prefix):
                folder, link = ROOT, link.removeprefix(prefix)
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


_HELPS = [(page, *found) for page in PAGES for found in _HELP.findall(_read(page))]


@pytest.mark.parametrize(("page", "command", "text"), _HELPS, ids=[help[1] for help in _HELPS])
def test_help_in_the_docs_is_what_the_command_prints(page: Path, command: str, text: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "toolcrib"
    printed = subprocess.run(
        [sys.executable, "-m", "toolcrib", *arguments],
        env={"COLUMNS": "100", "PATH": "", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip() == text.strip()


def test_every_command_has_its_help_in_the_docs() -> None:
    commands = {command for _, command, _ in _HELPS}
    listed = subprocess.run(
        [sys.executable, "-m", "toolcrib", "--help"], capture_output=True, text=True, check=True
    ).stdout
    names = re.findall(r"^  (\w+)  ", listed.partition("Commands:")[2], re.MULTILINE)
    assert len(names) >= 3
    assert commands == {"toolcrib --help", *(f"toolcrib {name} --help" for name in names)}


def test_changelog_starts_with_the_current_version() -> None:
    found = re.search(r"^## (\S+)", _read(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert found
    assert found[1] == toolcrib.__version__

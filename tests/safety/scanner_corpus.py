"""The corpus of poisoned and benign definitions, in two halves: one to tune the scanner, one to report."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "corpus"
# Tools of other servers, which some definitions refer to.
OTHER_NAMES: Final = frozenset({"send_email", "list_issues", "search"})
_LOOKALIKES: Final = str.maketrans("aeopcyx", "аеорсух")
_FULLWIDTH: Final = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


class CorpusEntry(NamedTuple):
    """One definition, where its text stands, and whether it is in the half for tuning."""

    kind: str
    text: str
    definition: dict[str, Any]
    is_tuning: bool


# Each author wrote without knowledge of the others' texts. Nothing was trained on those of the judges.
AUTHORS: Final = ("house", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "tenth")
JUDGES: Final = ("independent", "judge", "ninth")
_HOUSE_FILES: Final = {
    **dict.fromkeys(("poisoned", "later", "styles", "held_back_styles", "unseen"), True),
    "benign": False,
}


class LabelledDefinition(NamedTuple):
    """A definition by one author."""

    name: str
    definition: dict[str, Any]
    is_poisoned: bool


def load_author(author: str) -> list[LabelledDefinition]:
    """Return all definitions by an author."""
    if author == "house":
        return [
            LabelledDefinition(entry.definition["name"], entry.definition, is_poisoned)
            for file, is_poisoned in _HOUSE_FILES.items()
            for entry in load_corpus(file)
        ]
    rows = [json.loads(line) for line in (_FOLDER / f"{author}.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        LabelledDefinition(
            row["name"],
            {
                "name": row["name"],
                "description": row["description"],
                **({"inputSchema": row["input_schema"]} if "input_schema" in row else {}),
            },
            row["label"] == "poisoned",
        )
        for row in rows
    ]


def load_corpus(name: str) -> list[CorpusEntry]:
    """Return the definitions of `poisoned.txt` or `benign.txt`. Lines alternate between the halves."""
    lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.partition("|")[::2] for line in lines if not line.startswith("#")]
    return [
        CorpusEntry(kind, text, _build_definition(kind, text), number % 2 == 0)
        for number, (kind, text) in enumerate(entries)
    ]


def _build_definition(kind: str, text: str) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": "tool", "description": "Does something useful.", "inputSchema": {"type": "object"}}
    if kind in _SCHEMAS:
        return {**tool, "inputSchema": {"type": "object", "properties": _SCHEMAS[kind](text)}}
    if kind == "title":
        return {**tool, "annotations": {"title": text}}
    return {**tool, "description": _DESCRIPTIONS.get(kind, str)(text)}


_SCHEMAS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "parameter": lambda text: {"value": {"type": "string", "description": text}},
    "name": lambda text: {text: {"type": "string"}},
    "enum": lambda text: {"value": {"enum": text.split("; ")}},
    "default": lambda text: {"value": {"type": "string", "default": text}},
}
_DESCRIPTIONS: Final[dict[str, Callable[[str], str]]] = {
    "hidden": lambda text: "Adds numbers." + "".join(chr(0xE0000 + ord(letter)) for letter in text),
    "zero_width": lambda text: "Adds numbers. " + "\u200b".join(text),
    "base64": lambda text: f"Adds numbers. {base64.b64encode(text.encode()).decode()}",
    "hex": lambda text: f"Adds numbers. {text.encode().hex()}",
    "escaped": lambda text: "Adds numbers. " + "".join(f"\\u{ord(letter):04x}" for letter in text),
    "fullwidth": lambda text: f"Adds numbers. {text.translate(_FULLWIDTH)}",
    "lookalike": lambda text: f"Adds numbers. {text.translate(_LOOKALIKES)}",
    "reversed": lambda text: f"Adds numbers. \u202e{text[::-1]}\u202c",
    "comment": lambda text: f"Adds numbers. <!-- {text} -->",
}

"""Reading a tool's definition for what may be there to mislead a model.

Every text of a definition counts, names and keys included, however deep: a model reads them all.
A scan finds what is usual in attacks; that it finds nothing is no proof of innocence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from toolcrib.safety.display import escape_invisible
from toolcrib.safety.finding import SafetyFinding
from toolcrib.safety.hidden_text import find_hidden_text
from toolcrib.safety.injection import find_instructions, find_lookalikes
from toolcrib.safety.obfuscation import decode_hidden_texts

MAX_TEXTS: Final = 20_000
MAX_CHARS: Final = 1_000_000
MAX_FINDINGS: Final = 50
_LOCATION_CHARS: Final = 120
_QUOTE_CHARS: Final = 100
_MAX_CACHED_CHARS: Final = 200
_MIN_INSTRUCTION_CHARS: Final = 10

# From a text to the definition it is in: the last step, and the way before it.
TextPath = tuple["TextPath", object] | tuple[()]
_KEY: Final = " (the key)"

_NAME: Final = re.compile(r"[A-Za-z][\w.-]{4,127}")
_IDENTIFIER: Final = re.compile(r"[a-z0-9][_-]+[A-Za-z0-9]|[a-z][A-Z]")
# Words that make a mention of another tool an order about it.
_INSTRUCTION: Final = re.compile(
    r"\b(?:instead of|rather than|never (?:use|call)|do not (?:use|call)|don't (?:use|call)|stop using|"
    r"replaces|supersedes|when(?:ever)? (?:you )?(?:use|using|call|calling|invoke|invoking)|"
    r"before (?:using|calling|invoking)|after (?:using|calling|invoking)|"
    r"(?:output|result|response)s? of|must|always)\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"[^.!?\n]{0,400}")


def scan_definition(
    tool: Mapping[str, Any], others: Collection[str] = frozenset()
) -> tuple[SafetyFinding, ...]:
    """What is suspicious in a definition, gravest first; nothing, most of the time.

    `others` are the names of other servers' tools (not of this tool's own server): what names one
    of them may want to change how it is used.
    """
    found: dict[SafetyFinding, None] = {}
    named: dict[str, SafetyFinding] = {}
    own: set[str] = set()
    chars = 0
    for count, (way, text) in enumerate(_iterate_texts(tool)):
        chars += len(text)
        if count >= MAX_TEXTS or chars > MAX_CHARS:
            said = "more text than is scanned; what follows was not looked at"
            found[SafetyFinding("size", _format_path(way), said, "high")] = None
            break
        for finding in (
            _scan_text_cached(text) if len(text) <= _MAX_CACHED_CHARS else _scan_text(text)
        ):
            found[replace(finding, location=_format_path(way))] = None
        if " " not in text:
            # Names of parameters and values to choose from, which are the tool's own words.
            own.add(text)
        elif others:
            for name, finding in _find_references(way, text, others):
                named.setdefault(name, finding)
    for name, finding in named.items():
        if name not in own:
            found[finding] = None
    ordered = sorted(found, key=lambda finding: finding.severity != "high")
    return tuple(ordered[:MAX_FINDINGS])


def _scan_text(text: str) -> tuple[SafetyFinding, ...]:
    """What is suspicious in a text, wherever it stands."""
    found = [*find_hidden_text("", text), *find_lookalikes("", text)]
    if len(text) >= _MIN_INSTRUCTION_CHARS or not text.isascii():
        found += find_instructions("", text)
    for hidden in decode_hidden_texts(text):
        quote = escape_invisible(hidden, _QUOTE_CHARS)
        found.append(SafetyFinding("encoded", "", f"an encoded text reads “{quote}”", "high"))
    return tuple(found)


# Most texts of a schema are its words, such as `properties`, which come again and again.
_scan_text_cached = lru_cache(maxsize=8192)(_scan_text)


def _find_references(
    way: TextPath, text: str, others: Collection[str]
) -> Iterator[tuple[str, SafetyFinding]]:
    if not any(map(others.__contains__, [name.rstrip(".-") for name in _NAME.findall(text)])):
        return
    for match in _NAME.finditer(text):
        name = match[0].rstrip(".-")
        if name not in others or not _IDENTIFIER.search(name):
            continue
        start = max(text.rfind(end, 0, match.start()) for end in ".!?\n") + 1
        sentence = _SENTENCE.match(text, start)
        is_order = bool(sentence and _INSTRUCTION.search(sentence[0]))
        said = f"names “{escape_invisible(name)}”, a tool of another server" + (
            ", and says how to use it" if is_order else ""
        )
        yield (
            name,
            SafetyFinding("reference", _format_path(way), said, "high" if is_order else "low"),
        )


def _iterate_texts(tool: Mapping[str, Any]) -> Iterator[tuple[TextPath, str]]:
    """Every text of a definition with the way to it, in order."""
    waiting: list[tuple[TextPath, object]] = [((), tool)]
    while waiting:
        way, value = waiting.pop()
        if isinstance(value, str):
            yield way, value
        # What comes from JSON is a dict, which is told sooner than that it is a mapping.
        elif isinstance(value, dict | Mapping):
            inner: list[tuple[TextPath, object]] = []
            for key, item in value.items():
                step: TextPath = (way, key)
                yield (step, _KEY), str(key)
                inner.append((step, item))
            waiting.extend(reversed(inner))
        elif isinstance(value, list | tuple):
            waiting.extend(((way, n), value[n]) for n in reversed(range(len(value))))


def _format_path(way: TextPath) -> str:
    """A way in words; the end of a long one, which tells more than its middle."""
    steps: list[str] = []
    chars = 0
    while way and chars <= _LOCATION_CHARS:
        way, step = way
        told = f"[{step}]" if isinstance(step, int) else escape_invisible(str(step), 60)
        steps.append(told if isinstance(step, int) or step is _KEY or not way else f".{told}")
        chars += len(steps[-1])
    return ("…" if way else "") + "".join(reversed(steps))

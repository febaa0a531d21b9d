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

from toolcrib.safety.display import visible
from toolcrib.safety.finding import Finding
from toolcrib.safety.hidden_text import hidden_findings
from toolcrib.safety.injection import lookalike_findings, order_findings
from toolcrib.safety.obfuscation import decoded_texts

MAX_TEXTS: Final = 20_000
MAX_CHARS: Final = 1_000_000
MAX_FINDINGS: Final = 50
_WHERE_CHARS: Final = 120
_QUOTE_CHARS: Final = 100
_OFTEN_CHARS: Final = 200
_MIN_ORDER_CHARS: Final = 10

# From a text to the definition it is in: the last step, and the way before it.
Way = tuple["Way", object] | tuple[()]
_KEY: Final = " (the key)"

_NAME: Final = re.compile(r"[A-Za-z][\w.-]{4,127}")
_IDENTIFIER: Final = re.compile(r"[a-z0-9][_-]+[A-Za-z0-9]|[a-z][A-Z]")
# Words that make a mention of another tool an order about it.
_ORDERING: Final = re.compile(
    r"\b(?:instead of|rather than|never (?:use|call)|do not (?:use|call)|don't (?:use|call)|stop using|"
    r"replaces|supersedes|when(?:ever)? (?:you )?(?:use|using|call|calling|invoke|invoking)|"
    r"before (?:using|calling|invoking)|after (?:using|calling|invoking)|"
    r"(?:output|result|response)s? of|must|always)\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"[^.!?\n]{0,400}")


def scan(tool: Mapping[str, Any], others: Collection[str] = frozenset()) -> tuple[Finding, ...]:
    """What is suspicious in a definition, gravest first; nothing, most of the time.

    `others` are the names of other servers' tools (not of this tool's own server): what names one
    of them may want to change how it is used.
    """
    found: dict[Finding, None] = {}
    named: dict[str, Finding] = {}
    own: set[str] = set()
    chars = 0
    for count, (way, text) in enumerate(_texts(tool)):
        chars += len(text)
        if count >= MAX_TEXTS or chars > MAX_CHARS:
            said = "more text than is scanned; what follows was not looked at"
            found[Finding("size", _place(way), said, "high")] = None
            break
        for finding in _found_often(text) if len(text) <= _OFTEN_CHARS else _found(text):
            found[replace(finding, where=_place(way))] = None
        if " " not in text:
            # Names of parameters and values to choose from, which are the tool's own words.
            own.add(text)
        elif others:
            for name, finding in _references(way, text, others):
                named.setdefault(name, finding)
    for name, finding in named.items():
        if name not in own:
            found[finding] = None
    ordered = sorted(found, key=lambda finding: finding.severity != "high")
    return tuple(ordered[:MAX_FINDINGS])


def _found(text: str) -> tuple[Finding, ...]:
    """What is suspicious in a text, wherever it stands."""
    found = [*hidden_findings("", text), *lookalike_findings("", text)]
    if len(text) >= _MIN_ORDER_CHARS or not text.isascii():
        found += order_findings("", text)
    for hidden in decoded_texts(text):
        quote = visible(hidden, _QUOTE_CHARS)
        found.append(Finding("encoded", "", f"an encoded text reads “{quote}”", "high"))
    return tuple(found)


# Most texts of a schema are its words, such as `properties`, which come again and again.
_found_often = lru_cache(maxsize=8192)(_found)


def _references(way: Way, text: str, others: Collection[str]) -> Iterator[tuple[str, Finding]]:
    if not any(map(others.__contains__, [name.rstrip(".-") for name in _NAME.findall(text)])):
        return
    for match in _NAME.finditer(text):
        name = match[0].rstrip(".-")
        if name not in others or not _IDENTIFIER.search(name):
            continue
        start = max(text.rfind(end, 0, match.start()) for end in ".!?\n") + 1
        sentence = _SENTENCE.match(text, start)
        is_order = bool(sentence and _ORDERING.search(sentence[0]))
        said = f"names “{visible(name)}”, a tool of another server" + (
            ", and says how to use it" if is_order else ""
        )
        yield name, Finding("reference", _place(way), said, "high" if is_order else "low")


def _texts(tool: Mapping[str, Any]) -> Iterator[tuple[Way, str]]:
    """Every text of a definition with the way to it, in order."""
    waiting: list[tuple[Way, object]] = [((), tool)]
    while waiting:
        way, value = waiting.pop()
        if isinstance(value, str):
            yield way, value
        # What comes from JSON is a dict, which is told sooner than that it is a mapping.
        elif isinstance(value, dict | Mapping):
            inner: list[tuple[Way, object]] = []
            for key, item in value.items():
                step: Way = (way, key)
                yield (step, _KEY), str(key)
                inner.append((step, item))
            waiting.extend(reversed(inner))
        elif isinstance(value, list | tuple):
            waiting.extend(((way, n), value[n]) for n in reversed(range(len(value))))


def _place(way: Way) -> str:
    """A way in words; the end of a long one, which tells more than its middle."""
    steps: list[str] = []
    chars = 0
    while way and chars <= _WHERE_CHARS:
        way, step = way
        told = f"[{step}]" if isinstance(step, int) else visible(str(step), 60)
        steps.append(told if isinstance(step, int) or step is _KEY or not way else f".{told}")
        chars += len(steps[-1])
    return ("…" if way else "") + "".join(reversed(steps))

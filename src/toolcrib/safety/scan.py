"""Scan tool definitions for text that may mislead a model.

A scan covers every text of a definition, including names and keys at any depth, because a model
reads them all. It detects common attacks; a result without findings does not prove a tool safe.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.safety.detector import MAX_PASSAGES, NamedText, Passage, load_detector, split_passages
from toolcrib.safety.hidden_text import SafetyFinding, Severity, escape_invisible, find_hidden_text
from toolcrib.safety.injection import find_instructions, find_lookalikes, normalize_text

MAX_TEXTS: Final = 20_000
MAX_CHARS: Final = 1_000_000
MAX_FINDINGS: Final = 50
_LOCATION_CHARS: Final = 120
_QUOTE_CHARS: Final = 100
_SENTENCE_CHARS: Final = 300
_MAX_CACHED_CHARS: Final = 200
_MIN_INSTRUCTION_CHARS: Final = 10
# A name of fewer words, such as `readOnlyHint`, cannot be an instruction.
_MIN_NAME_PARTS: Final = 4
_NAME_PART: Final = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|[^\x00-\x7f]")

# The path to a text as a linked list: the path of its container, then the last key or index.
TextPath = tuple["TextPath", object] | tuple[()]
_KEY: Final = " (the key)"

_NAME: Final = re.compile(r"[A-Za-z][\w.-]{4,127}")
_IDENTIFIER: Final = re.compile(r"[a-z0-9][_-]+[A-Za-z0-9]|[a-z][A-Z]")
# Words that turn the mention of another tool into an instruction about it.
_INSTRUCTION: Final = re.compile(
    r"\b(?:instead of|rather than|never (?:use|call)|do not (?:use|call)|don't (?:use|call)|stop using|"
    r"replaces|supersedes|when(?:ever)? (?:you )?(?:use|using|call|calling|invoke|invoking)|"
    r"before (?:using|calling|invoking)|after (?:using|calling|invoking)|"
    r"(?:output|result|response)s? of|must|always)\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"[^.!?\n]{0,400}")

# Shorter texts are too short for an instruction.
MIN_BASE64_CHARS: Final = 24
MIN_HEX_CHARS: Final = 32
MAX_PAYLOADS: Final = 50
MAX_PAYLOAD_CHARS: Final = 20_000

_BASE64: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{MIN_BASE64_CHARS},{MAX_PAYLOAD_CHARS}}}={{0,2}}")
_HEX: Final = re.compile(rf"(?:0x)?((?:[0-9a-fA-F]{{2}}){{{MIN_HEX_CHARS // 2},{MAX_PAYLOAD_CHARS}}})")
_ESCAPES: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9a-fA-F]{2}|&#x?[0-9a-fA-F]{2,6};){8,5000}")
_ESCAPE: Final = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})|&#x([0-9a-fA-F]{2,6});|&#([0-9]{2,6});"
)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_IMAGE: Final = re.compile(r"data:(?:image|font|audio|video)/[\w.+-]+(?:;[\w=-]+)*,[A-Za-z0-9+/=%_-]*")


def scan_definition(tool: Mapping[str, Any], other_names: Collection[str] = frozenset()) -> tuple[SafetyFinding, ...]:
    """Return the findings of a tool definition, high severity first.

    `other_names` are the names of tools of other servers. A definition that mentions one of them
    may try to change how that tool is used.
    """
    findings: dict[SafetyFinding, None] = {}
    texts, rest = _list_texts(tool)
    if rest is not None:
        message = "the definition is too large; the rest was not scanned"
        findings[SafetyFinding("size", _format_path(rest), message, "high")] = None
    unsuspected: list[tuple[TextPath, str]] = []
    for path, text in texts:
        scan = _scan_text_cached if len(text) <= _MAX_CACHED_CHARS else _scan_text
        found = scan(text)
        for finding in found:
            findings[replace(finding, location=_format_path(path))] = None
        if not any(finding.severity == "high" for finding in found):
            unsuspected.append((path, text))
    findings.update(dict.fromkeys(_find_suspicious_sentences(str(tool.get("name", "")), unsuspected)))
    return add_references(tool, findings, other_names)


def add_references(
    tool: Mapping[str, Any], findings: Iterable[SafetyFinding], other_names: Collection[str]
) -> tuple[SafetyFinding, ...]:
    """Return findings together with the mentions of tools of other servers, high severity first."""
    references: dict[str, SafetyFinding] = {}
    texts = _list_texts(tool)[0] if other_names else []
    for path, text in texts:
        for name, finding in _find_references(path, text, other_names):
            references.setdefault(name, finding)
    # Parameter names and enum values are the tool's own words, not references.
    own_words = {text for _, text in texts if " " not in text}
    found = [*findings, *(finding for name, finding in references.items() if name not in own_words)]
    return tuple(sorted(found, key=lambda finding: finding.severity != "high")[:MAX_FINDINGS])


def list_mentions(tool: Mapping[str, Any]) -> frozenset[str]:
    """Return the words of a definition that may name another tool.

    If none of them is among `other_names`, `scan_definition` finds the same without these names.
    """
    mentions: set[str] = set()
    for _, text in _iterate_texts(tool):
        if " " in text:
            names = [name.rstrip(".-") for name in _NAME.findall(text)]
            mentions.update(name for name in names if _IDENTIFIER.search(name))
    return frozenset(mentions)


def _scan_text(text: str) -> tuple[SafetyFinding, ...]:
    """Return the findings of one text, without a location."""
    findings = [*find_hidden_text(text), *find_lookalikes(text)]
    if len(text) >= _MIN_INSTRUCTION_CHARS or not text.isascii():
        findings += find_instructions(text)
    for decoded in decode_hidden_texts(text):
        quote = escape_invisible(decoded, _QUOTE_CHARS)
        findings.append(SafetyFinding("encoded", "", f"an encoded text reads “{quote}”", "high"))
    return tuple(findings)


# Most texts of a schema are keywords such as `properties`, which repeat in every definition.
_scan_text_cached = lru_cache(maxsize=8192)(_scan_text)


def split_definition(tool: Mapping[str, Any], tokenizer: WordPieceTokenizer) -> list[Passage]:
    """Return the passages of a definition that the detector reads."""
    return _split_texts(str(tool.get("name", "")), list(_iterate_texts(tool)), tokenizer)


def _split_texts(name: str, texts: list[tuple[TextPath, str]], tokenizer: WordPieceTokenizer) -> list[Passage]:
    named = (
        NamedText(number, _find_parameter(path), normalize_text(text))
        for number, (path, text) in enumerate(texts)
        if len(text) >= _MIN_INSTRUCTION_CHARS and (" " in text or _NAME_PART.subn("", text)[1] >= _MIN_NAME_PARTS)
    )
    return split_passages(tokenizer, name, named)


def _find_suspicious_sentences(name: str, texts: list[tuple[TextPath, str]]) -> Iterator[SafetyFinding]:
    """Yield a finding for each sentence that reads like an instruction to the model."""
    detector = load_detector()
    passages = _split_texts(name, texts, detector.tokenizer)
    if len(passages) > MAX_PASSAGES:
        location = _format_path(texts[passages[MAX_PASSAGES].sentences[0].number][0])
        yield SafetyFinding("size", location, "the definition is too large; the rest was not read in full", "high")
    for suspect, is_certain in detector.find_suspects(passages[:MAX_PASSAGES]):
        location = _format_path(texts[suspect.number][0])
        quote = escape_invisible(suspect.text, _SENTENCE_CHARS)
        message = f"reads like instructions to the model that the user did not ask for: “{quote}”"
        yield SafetyFinding("order", location, message, "high" if is_certain else "low")


def _find_parameter(path: TextPath) -> str:
    """Return the name of the parameter that a text belongs to."""
    steps: list[object] = []
    while path:
        path, step = path
        if step == "properties" and steps:
            return str(steps[-1])
        steps.append(step)
    return ""


def _find_references(path: TextPath, text: str, other_names: Collection[str]) -> Iterator[tuple[str, SafetyFinding]]:
    """Yield the tools of other servers that a text of several words mentions, each with a finding."""
    if " " not in text or not any(name.rstrip(".-") in other_names for name in _NAME.findall(text)):
        return
    for match in _NAME.finditer(text):
        name = match[0].rstrip(".-")
        if name not in other_names or not _IDENTIFIER.search(name):
            continue
        start = max(text.rfind(end, 0, match.start()) for end in ".!?\n") + 1
        sentence = _SENTENCE.match(text, start)
        is_instruction = bool(sentence and _INSTRUCTION.search(sentence[0]))
        message = f"names “{escape_invisible(name)}”, a tool of another server" + (
            ", and tells the model how to use it" if is_instruction else ""
        )
        severity: Severity = "high" if is_instruction else "low"
        yield name, SafetyFinding("reference", _format_path(path), message, severity)


def _list_texts(tool: Mapping[str, Any]) -> tuple[list[tuple[TextPath, str]], TextPath | None]:
    """Return the texts that are scanned, each with its path, and the path of the first one that is not."""
    texts: list[tuple[TextPath, str]] = []
    chars = 0
    for path, text in _iterate_texts(tool):
        chars += len(text)
        if len(texts) >= MAX_TEXTS or chars > MAX_CHARS:
            return texts, path
        texts.append((path, text))
    return texts, None


def _iterate_texts(tool: Mapping[str, Any]) -> Iterator[tuple[TextPath, str]]:
    """Yield every text of a definition with its path, in order."""
    pending: list[tuple[TextPath, object]] = [((), tool)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, str):
            yield path, value
        # `dict` first: the check for `Mapping` is slow, and parsed JSON contains only dicts.
        elif isinstance(value, dict | Mapping):
            items: list[tuple[TextPath, object]] = []
            for key, item in value.items():
                key_path: TextPath = (path, key)
                yield (key_path, _KEY), str(key)
                items.append((key_path, item))
            pending.extend(reversed(items))
        elif isinstance(value, list | tuple):
            pending.extend(((path, n), value[n]) for n in reversed(range(len(value))))


def _format_path(path: TextPath) -> str:
    """Return a path as text; of a long path, only its end."""
    steps: list[str] = []
    chars = 0
    while path and chars <= _LOCATION_CHARS:
        path, step = path
        text = f"[{step}]" if isinstance(step, int) else escape_invisible(str(step), 60)
        is_first = not path
        steps.append(text if isinstance(step, int) or step is _KEY or is_first else f".{text}")
        chars += len(steps[-1])
    return ("…" if path else "") + "".join(reversed(steps))


def decode_hidden_texts(text: str) -> Iterator[str]:
    """Yield the readable texts that are encoded in a text."""
    # An encoded text has no spaces and is longer than most words.
    if len(text) < MIN_BASE64_CHARS or max(map(len, text.split()), default=0) < MIN_BASE64_CHARS:
        return
    if "data:" in text:
        text = _IMAGE.sub(" ", text)
    count = 0
    for pattern, decode in ((_ESCAPES, _decode_escapes), (_HEX, _decode_hex), (_BASE64, _decode_base64)):
        for match in pattern.finditer(text):
            count += 1
            if count > MAX_PAYLOADS:
                return
            decoded = decode(match[0])
            if decoded and _is_readable(decoded):
                yield decoded


def _decode_base64(text: str) -> str:
    unpadded = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    unpadded = unpadded[: len(unpadded) - (len(unpadded) % 4 == 1)]
    return _decode_utf8(base64.b64decode(unpadded + "=" * (-len(unpadded) % 4)))


def _decode_hex(text: str) -> str:
    return _decode_utf8(binascii.unhexlify(text.removeprefix("0x")))


def _decode_escapes(text: str) -> str:
    def decode_match(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3] or match[4]
        code = int(digits, 16) if digits else int(match[5])
        return chr(code) if code <= 0x10FFFF else ""

    return _ESCAPE.sub(decode_match, text)


def _decode_utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""


def _is_readable(text: str) -> bool:
    """Return whether a text consists mostly of words, which random bytes do not."""
    if not all(character.isprintable() or character in "\n\r\t" for character in text):
        return False
    words = _WORD.findall(text)
    return len(words) >= 3 and sum(map(len, words)) >= 0.6 * len(text)

"""Compare large results shown whole, truncated, and as a preview with at most two reads: tokens and answered questions.

    python -m benchmarks.results

The 50 results were recorded from real servers (`benchmarks/results_record.py`): the filesystem, SQLite and git servers
of the MCP project, on sample data and on the files of this repository. `results_questions.jsonl` has two questions about
each, written by hand. A question counts as answered if the shown text contains its answer; a number must be in a line
with a word of the question. `choose_reads` chooses the reads from the question and the preview, by the same rules for
all questions. Reading stops when the answer is shown, as a model would stop.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolcrib.config.settings import ResultsConfig
from toolcrib.errors import ToolcribError
from toolcrib.gateway.mcp.results.document import ResultDocument, estimate_text_tokens
from toolcrib.gateway.mcp.results.preview import render_preview
from toolcrib.gateway.mcp.results.reading import ReadRequest, read_document

FOLDER: Final = Path(__file__).parent
SETTINGS: Final = ResultsConfig()
MAX_READS: Final = 2
_QUOTED: Final = re.compile(r"[\"'`]([^\"'`]{3,})[\"'`]")
_WORD: Final = re.compile(r"[#/]?[A-Za-z0-9_][\w.:/#-]*\w|\w")
_RANGE: Final = re.compile(r"^\W*([\w.-]+):.*?(\S+) to (\S+?)(?:,|;|$)")
_HIGHEST: Final = ("highest", "largest", "longest", "latest", "most", "maximum")
_LOWEST: Final = ("lowest", "smallest", "shortest", "earliest", "least", "minimum")
_COMMON: Final = frozenset(
    [
        "what", "which", "who", "where", "when", "how", "many", "much", "is", "are", "was", "were", "the", "a",
        "an", "of", "in", "on", "for", "to", "from", "with", "by", "at", "did", "does", "do", "it", "all", "one",
        "that", "than", "there", "has", "have", "or", "and", "if", "else", "be", "should", "say", "says", "his",
        "her", "its", "their", "file", "value", "limit", "number",
    ]
)  # fmt: skip


@dataclass(frozen=True)
class ResultQuestion:
    """A question about a recorded result."""

    result: str
    text: str
    answer: str


def load_recording() -> dict[str, dict[str, Any]]:
    """Return the recorded results by id."""
    recorded = json.loads(gzip.decompress((FOLDER / "results_recorded.json.gz").read_bytes()))
    return {entry["id"]: entry for entry in recorded}


def load_questions() -> list[ResultQuestion]:
    """Return the questions."""
    lines = (FOLDER / "results_questions.jsonl").read_text(encoding="utf-8").splitlines()
    entries = map(json.loads, lines)
    return [ResultQuestion(entry["result"], entry["question"], entry["answer"]) for entry in entries]


def extract_terms(question: str) -> list[str]:
    """Return the terms of a question, the most specific first."""
    quoted = _QUOTED.findall(question)
    rest = _QUOTED.sub(" ", question)
    words = [word for word in _WORD.findall(rest)[1:] if word.lower() not in _COMMON]
    identifiers = [word for word in words if re.search(r"\d|_|/|#", word)]
    names = re.findall(r"(?<!^)\b[A-Z][a-z]+ [A-Z][a-z]+\b", rest)
    others = sorted((word for word in words if word not in identifiers), key=len, reverse=True)
    return list(dict.fromkeys([*quoted, *identifiers, *names, *others]))


def choose_reads(question: str, preview: str) -> Iterator[ReadRequest]:
    """Yield the reads for a question, chosen from the question and the preview alone."""
    terms = extract_terms(question)
    lowered = question.lower()
    if any(word in lowered.split() for word in (*_HIGHEST, *_LOWEST)):
        for line in preview.splitlines():
            if (match := _RANGE.match(line)) and any(match[1].lower() in term.lower() for term in terms):
                value = match[3] if any(word in lowered for word in _HIGHEST) else match[2]
                yield ReadRequest(search=value.strip('"'))
                break
    for term in terms:
        yield ReadRequest(search=term)


def is_answered(question: ResultQuestion, shown: str) -> bool:
    """Return whether a text contains the answer."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(question.answer)}(?!\w|\.\d)")
    if not question.answer.replace(".", "").lstrip("-").isdigit():
        return bool(pattern.search(shown)) or question.answer in shown
    terms = [part.lower() for term in extract_terms(question.text) for part in re.split(r"[\s.]", term)]
    stems = [term.rstrip("s")[:6] for term in terms]
    lines = (line.lower().replace(",", "") for line in shown.splitlines())
    return any(pattern.search(line) and any(stem in line for stem in stems) for line in lines)


@dataclass
class Measurement:
    """The tokens and the answered questions of one method of showing results."""

    name: str
    tokens: int = 0
    answered: int = 0


def main() -> None:
    """Run the benchmark and print the table."""
    recording, questions = load_recording(), load_questions()
    raw, cut = Measurement("whole result"), Measurement(f"truncated to {SETTINGS.budget_tokens:,} tokens")
    alone, read = Measurement("preview alone"), Measurement(f"preview and at most {MAX_READS} reads")
    missed: list[str] = []
    for question in questions:
        text = recording[question.result]["text"]
        document = ResultDocument(text)
        tokens = estimate_text_tokens(text)
        raw.tokens += tokens
        raw.answered += 1
        head = text[: round(len(text) * SETTINGS.budget_tokens / max(tokens, SETTINGS.budget_tokens))]
        cut.tokens += min(tokens, SETTINGS.budget_tokens)
        cut.answered += is_answered(question, head)
        shown = render_preview(document, SETTINGS.preview_tokens)
        alone.tokens += estimate_text_tokens(shown)
        alone.answered += is_answered(question, shown)
        for number, request in enumerate(choose_reads(question.text, shown)):
            if is_answered(question, shown) or number == MAX_READS:
                break
            try:
                shown += "\n" + read_document(document, request, SETTINGS.read_tokens)
            except ToolcribError as error:
                shown += f"\n{error}"
        read.tokens += estimate_text_tokens(shown)
        if is_answered(question, shown):
            read.answered += 1
        else:
            missed.append(f"{question.result}: {question.text} ({question.answer})")
    print(f"{len(recording)} results, {len(questions)} questions\n")
    print("| shown | answered | tokens per question | share of the whole result |\n|---|---|---|---|")
    for method in (raw, cut, alone, read):
        share = method.tokens / raw.tokens
        print(f"| {method.name} | {method.answered} | {method.tokens / len(questions):,.0f} | {share:.1%} |")
    print("\nnot answered:", *missed, sep="\n- ")


if __name__ == "__main__":
    main()

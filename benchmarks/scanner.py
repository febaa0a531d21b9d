"""Measure the safety scanner: poisoned definitions found, and false alarms on benign and real ones.

    python -m benchmarks.scanner

The corpus (`tests/safety/corpus`) is our own. Every second line was used to tune the patterns; the others are
reported. The real tools are those of the catalog in `TOOLCRIB_DATA`, if it exists; each server sees the tool
names of all other servers. `--list` prints what was missed and what was a false alarm in the half for tuning.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.safety.scanner_corpus import OTHER_NAMES, CorpusEntry, load_corpus
from toolcrib.safety.scan import scan_definition


def is_flagged(definition: dict[str, Any], other_names: frozenset[str] = OTHER_NAMES) -> bool:
    """Return whether a definition has a finding of high severity."""
    return any(finding.severity == "high" for finding in scan_definition(definition, other_names))


def print_share(label: str, hits: int, total: int) -> None:
    """Print a share of the definitions."""
    print(f"{label:<44} {hits:>5} of {total:>5}  {hits / total:7.2%}" if total else f"{label:<44} no data")


def print_corpus(name: str, label: str, *, lists: bool, expected: bool) -> None:
    """Print the share of flagged definitions of a file, for each half."""
    corpus = load_corpus(name)
    for half, is_tuning in (("tuning half", True), ("reported half", False)):
        entries = [entry for entry in corpus if entry.is_tuning is is_tuning]
        flagged = [entry for entry in entries if is_flagged(entry.definition)]
        print_share(f"{label}, {half}", len(flagged), len(entries))
        if lists and is_tuning:
            _print_wrong([entry for entry in entries if (entry in flagged) is not expected])


def print_attacks(name: str, label: str) -> None:
    """Print the share of the attacks of a file that are found."""
    entries = load_corpus(name)
    print_share(label, sum(is_flagged(entry.definition) for entry in entries), len(entries))


def _print_wrong(entries: list[CorpusEntry]) -> None:
    for entry in entries:
        print(f"    {entry.kind}: {entry.text}")


def print_real_tools(path: Path) -> None:
    """Print the share of flagged tools of real servers."""
    tools = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names: dict[str, set[str]] = {}
    for tool in tools:
        names.setdefault(str(tool.get("server", "")), set()).add(tool["name"])
    # A name that the server itself has is not a reference to another server, as in the gateway.
    others = {
        server: frozenset().union(*(names[one] for one in names if one != server)) - names[server] for server in names
    }
    flagged = [tool for tool in tools if is_flagged(_definition(tool), others[str(tool.get("server", ""))])]
    print_share(f"real tools of {len(names)} servers, false alarms", len(flagged), len(tools))
    for tool in flagged:
        print(f"    {tool.get('id', tool['name'])}")


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tool.items() if key not in ("id", "server")}


def main() -> None:
    """Print all figures."""
    lists = "--list" in sys.argv
    print_corpus("poisoned", "poisoned definitions found", lists=lists, expected=True)
    print_corpus("benign", "benign definitions, false alarms", lists=lists, expected=False)
    print_attacks("unseen", "attacks in words of their own, found")
    print_attacks("styles", "attacks in 14 styles, found")
    print_attacks("held_back_styles", "attacks in 8 styles, held back, found")
    data = Path(os.environ.get("TOOLCRIB_DATA") or Path(__file__).parents[2] / "shared" / "data")
    catalog = data / "mcp_catalog" / "tools.jsonl"
    if catalog.is_file():
        print_real_tools(catalog)


if __name__ == "__main__":
    main()

"""Measure the safety scanner: poisoned definitions found, and false alarms on benign and real ones.

    python -m benchmarks.scanner

The corpus (`tests/safety/corpus`) is our own. Each author wrote without knowledge of the others' texts. The
detector was trained on four of them; the others, the judges, are only measured. The real tools are those of the catalog in `TOOLCRIB_DATA`, if it exists: half of the servers
took part in the training. Each server sees the tool names of all other servers. `--list` prints the false
alarms, and `--patterns` leaves the detector out.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from hashlib import md5
from pathlib import Path
from typing import Any

from tests.safety.scanner_corpus import AUTHORS, JUDGES, OTHER_NAMES, load_author
from toolcrib.safety.scan import scan_definition

_DETECTOR_MESSAGE = "reads like instructions"


def is_flagged(definition: dict[str, Any], other_names: frozenset[str] = OTHER_NAMES) -> bool:
    """Return whether a definition has a finding of high severity."""
    findings = (finding for finding in scan_definition(definition, other_names) if finding.severity == "high")
    return any(not (_DETECTOR_MESSAGE in one.message and "--patterns" in sys.argv) for one in findings)


def print_share(label: str, hits: int, total: int) -> None:
    """Print a share of the definitions."""
    print(f"{label:<44} {hits:>5} of {total:>5}  {hits / total:7.2%}", flush=True)


def print_author(author: str) -> None:
    """Print the share of an author's definitions that are flagged."""
    hits: Counter[bool] = Counter()
    totals: Counter[bool] = Counter()
    for _, definition, is_poisoned in load_author(author):
        totals[is_poisoned] += 1
        hits[is_poisoned] += is_flagged(definition)
    print_share(f"{author}: poisoned, found", hits[True], totals[True])
    print_share(f"{author}: benign, false alarms", hits[False], totals[False])


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
    unused = [tool for tool in tools if _is_unused(tool)]
    print_share("  of servers without part in the training", sum(map(_is_unused, flagged)), len(unused))
    if "--list" in sys.argv:
        for tool in flagged:
            print(f"    {tool.get('id', tool['name'])}")


def _is_unused(tool: dict[str, Any]) -> bool:
    """Return whether the server of a tool took no part in the training, as in `training.detector`."""
    return md5(tool["server"].encode()).digest()[0] % 2 == 1


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tool.items() if key not in ("id", "server", "package")}


def main() -> None:
    """Print all figures."""
    for author in (*AUTHORS, *JUDGES):
        print_author(author)
    data = Path(os.environ.get("TOOLCRIB_DATA") or Path(__file__).parents[2] / "shared" / "data")
    catalog = data / "mcp_catalog" / "tools.jsonl"
    if catalog.is_file():
        print_real_tools(catalog)


if __name__ == "__main__":
    main()

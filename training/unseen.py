"""Write an eval set of the servers that take no part in training.

    python -m training.unseen --data FOLDER --out FOLDER
    toolcrib eval FOLDER --mode hybrid --mode dense --mode fast --mode lexical

The tools are all tools of `mcp_catalog`. The queries are those written for its held-back servers, with
the style as kind: need, ask or agent. `--side dev` writes the servers on which settings are chosen.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Final

from training.data import STYLES, read_data

CATALOG: Final = "mcp_catalog"


def main() -> None:
    """Write the eval set."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m training.unseen", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="see training/README.md")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the eval set")
    parser.add_argument("--side", choices=("dev", "test"), default="test", help="which held-back servers")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(options.data / CATALOG / "tools.jsonl", options.out / "tools.jsonl")
    examples = [one for one in read_data(options.data).written[options.side] if one.tool[0] == CATALOG]
    rows = [
        {"id": f"{style}-{number}", "kind": style, "query": query, "relevant": [one.tool[1]]}
        for number, one in enumerate(examples)
        for style, query in zip(STYLES, one.queries, strict=True)
    ]
    with (options.out / "queries.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    print(f"{len(rows):,} queries for {len({one.tool for one in examples}):,} tools in {options.out}")


if __name__ == "__main__":
    main()

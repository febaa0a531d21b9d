"""Write an eval set of servers that the weights have never seen.

    python -m training.unseen --data FOLDER --out FOLDER
    toolcrib eval FOLDER --mode hybrid --mode dense --mode fast --mode lexical

The tools are those of `mcp_catalog` and of the unseen servers of all catalogs. The queries are those written
for the unseen servers, with the style as kind: need, ask or agent.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from training.data import CATALOGS, STYLES, read_data, read_rows

# The catalog whose tools are among the tools of the eval set, though no query is for them.
CATALOG: Final = "mcp_catalog"
_FIELDS: Final = ("name", "description", "input_schema", "title", "server", "category")


def main() -> None:
    """Write the eval set."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m training.unseen", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="see training/README.md")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the eval set")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = read_data(options.data)
    servers = {(one.tool[0], data.tools[one.tool].server) for one in data.unseen_servers}
    tools = [
        {"id": f"{catalog}/{row['id']}", **{field: row[field] for field in _FIELDS if row.get(field)}}
        for catalog in CATALOGS
        for row in read_rows(options.data / catalog / "tools.jsonl")
        if catalog == CATALOG or (catalog, row.get("server") or "") in servers
    ]
    rows = [
        {"id": f"{style}-{number}", "kind": style, "query": query, "relevant": ["/".join(one.tool)]}
        for number, one in enumerate(data.unseen_servers)
        for style, query in zip(STYLES, one.queries, strict=True)
    ]
    for name, objects in (("tools.jsonl", tools), ("queries.jsonl", rows)):
        with (options.out / name).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)
    print(f"{len(rows):,} queries for tools of {len(servers):,} servers, among {len(tools):,} tools, in {options.out}")


if __name__ == "__main__":
    main()

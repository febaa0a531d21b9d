"""Record large results of real MCP servers for `benchmarks/results.py`.

Writes seeded sample data (logs, tables, JSON exports, a database) to a folder, and calls the published servers
`@modelcontextprotocol/server-filesystem`, `mcp-server-git` and `mcp-server-sqlite` on it, and on the files of a
repository. Run it once; the recording is part of the repository:

    python -m benchmarks.results_record --node-modules DIR --git-server FILE --sqlite-server FILE \
        --repository DIR
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import sqlite3
import subprocess
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

RECORDING: Final = Path(__file__).parent / "results_recorded.json.gz"
START: Final = datetime(2026, 3, 2, 8, 0, 0)
FIRST: Final = [
    "Ada",
    "Ben",
    "Cleo",
    "Dev",
    "Eve",
    "Finn",
    "Gus",
    "Hana",
    "Ines",
    "Jon",
    "Kai",
    "Lena",
    "Mia",
    "Noor",
    "Omar",
    "Pia",
    "Quin",
    "Rosa",
    "Sam",
    "Tess",
    "Uma",
    "Vic",
]
LAST: Final = [
    "Abbot",
    "Brandt",
    "Costa",
    "Diaz",
    "Ekberg",
    "Farah",
    "Goto",
    "Hanif",
    "Ivanov",
    "Jensen",
    "Khan",
    "Lopez",
    "Meyer",
    "Novak",
    "Okafor",
    "Patel",
]
CITIES: Final = [
    "Lisbon",
    "Oslo",
    "Kyoto",
    "Lagos",
    "Quito",
    "Turin",
    "Porto",
    "Delhi",
    "Perth",
    "Osaka",
    "Cairo",
    "Lima",
    "Bergen",
    "Accra",
    "Tunis",
    "Malmo",
]
WORDS: Final = [
    "login",
    "search",
    "cache",
    "export",
    "invoice",
    "webhook",
    "editor",
    "billing",
    "upload",
    "session",
    "report",
    "sync",
    "avatar",
    "filter",
]
VERBS: Final = "Fix Speed up|Remove|Document|Refactor|Test|Add|Rename|Restore|Simplify".replace("Fix ", "Fix|").split(
    "|"
)


def write_samples(folder: Path, seed: int = 20) -> None:
    """Write logs, tables, JSON exports and a database, the same ones for the same seed."""
    rng = random.Random(seed)

    def person() -> str:
        return f"{rng.choice(FIRST)} {rng.choice(LAST)}"

    def when(index: int, minutes: int = 7) -> str:
        return (START + timedelta(minutes=index * minutes + rng.randrange(minutes))).strftime("%Y-%m-%dT%H:%M:%SZ")

    def rows_to_csv(name: str, rows: list[dict[str, Any]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        (folder / name).write_text(text.getvalue(), encoding="utf-8")

    def to_json(name: str, value: Any, indent: int | None = None) -> None:
        (folder / name).write_text(json.dumps(value, indent=indent), encoding="utf-8")

    def issue(index: int) -> dict[str, Any]:
        return {
            "number": 4100 + index,
            "title": f"{rng.choice(VERBS)} the {rng.choice(WORDS)} of the {rng.choice(WORDS)} page",
            "state": rng.choice(["open", "open", "closed"]),
            "user": {"login": rng.choice(FIRST).lower(), "id": rng.randrange(10**6)},
            "labels": [{"name": name} for name in rng.sample(["bug", "ui", "api", "docs", "perf"], rng.randrange(3))],
            "comments": rng.randrange(40),
            "created_at": when(index, 300),
            "html_url": f"https://example.com/acme/site/issues/{4100 + index}",
            "body": " ".join(rng.choices(WORDS, k=rng.randrange(20, 60))),
        }

    to_json("issues.json", {"total_count": 260, "incomplete": False, "items": [issue(n) for n in range(260)]})
    to_json(
        "pulls.json", [{**issue(n), "merged_by": person(), "additions": rng.randrange(3000)} for n in range(220)], 1
    )
    to_json(
        "runs.json",
        {
            "workflow_runs": [
                {
                    "id": 88_000_000 + 37 * n,
                    "name": rng.choice(["build", "test", "deploy", "lint"]),
                    "head_branch": f"{rng.choice(WORDS)}-{rng.randrange(900)}",
                    "conclusion": rng.choice(["success", "success", "success", "failure", "cancelled"]),
                    "run_attempt": rng.choice([1, 1, 2]),
                    "duration_seconds": rng.randrange(40, 2400),
                    "actor": person(),
                    "created_at": when(n, 31),
                }
                for n in range(320)
            ]
        },
    )
    to_json(
        "pods.json",
        {
            "items": [
                {
                    "metadata": {
                        "name": f"{rng.choice(WORDS)}-{n:03}-{rng.randrange(16**5):05x}",
                        "namespace": rng.choice(["prod", "stage"]),
                    },
                    "status": {
                        "phase": rng.choice(["Running", "Running", "Pending", "Failed"]),
                        "podIP": f"10.2.{n % 200}.{rng.randrange(250)}",
                    },
                    "restarts": rng.choice([0, 0, 0, 1, 2, 17]),
                    "node": f"node-{rng.randrange(12)}",
                    "image": f"registry.example.com/{rng.choice(WORDS)}:{rng.randrange(1, 9)}.{rng.randrange(20)}.{rng.randrange(9)}",
                }
                for n in range(300)
            ]
        },
    )
    to_json(
        "users.json",
        {
            f"u-{n:05}": {
                "name": person(),
                "city": rng.choice(CITIES),
                "plan": rng.choice(["free", "team", "pro"]),
                "seats": rng.randrange(1, 300),
                "email": f"user{n}@example.com",
                "last_login": when(n, 55),
            }
            for n in range(400)
        },
    )
    to_json(
        "products.json",
        [
            {
                "sku": f"SKU-{n:04}-{rng.choice('ABCD')}",
                "name": f"{rng.choice(CITIES)} {rng.choice(WORDS)} kit",
                "price": round(rng.uniform(3, 900), 2),
                "stock": rng.randrange(500),
                "tags": rng.sample(WORDS, 3),
            }
            for n in range(420)
        ],
    )
    to_json(
        "events.json",
        {
            "kind": "calendar#events",
            "items": [
                {
                    "id": f"ev{n:04}",
                    "summary": f"{rng.choice(WORDS)} review with {person()}",
                    "location": f"Room {rng.randrange(1, 40)}",
                    "start": {"dateTime": when(n, 90)},
                    "attendees": [{"name": person()} for _ in range(rng.randrange(1, 5))],
                }
                for n in range(260)
            ],
        },
    )
    to_json(
        "messages.json",
        {
            "ok": True,
            "has_more": True,
            "messages": [
                {
                    "ts": f"17{n:08}.{rng.randrange(10**6):06}",
                    "user": person(),
                    "text": " ".join(rng.choices(WORDS, k=rng.randrange(6, 30))),
                    "reactions": rng.randrange(9),
                }
                for n in range(420)
            ],
        },
    )
    rows_to_csv(
        "orders.csv",
        [
            {
                "order_id": f"ORD-{70000 + n}",
                "customer": person(),
                "city": rng.choice(CITIES),
                "status": rng.choice(["paid", "shipped", "refunded"]),
                "total": round(rng.uniform(5, 2500), 2),
                "ordered_at": when(n, 40),
            }
            for n in range(900)
        ],
    )
    rows_to_csv(
        "employees.csv",
        [
            {
                "employee_id": 3000 + n,
                "name": person(),
                "department": rng.choice(["Sales", "Legal", "Support", "Engineering", "Finance"]),
                "salary": rng.randrange(32000, 160000, 250),
                "office": rng.choice(CITIES),
                "hired": when(n, 2000)[:10],
            }
            for n in range(900)
        ],
    )
    rows_to_csv(
        "sensors.csv",
        [
            {
                "reading": n,
                "sensor": f"S{rng.randrange(40):02}",
                "temperature": round(rng.gauss(21, 6), 2),
                "humidity": rng.randrange(15, 99),
                "battery": rng.randrange(100),
                "at": when(n, 5),
            }
            for n in range(1000)
        ],
    )
    rows_to_csv(
        "inventory.csv",
        [
            {
                "bin": f"{rng.choice('ABCDEF')}{n:04}",
                "part": f"{rng.choice(WORDS)}-{rng.randrange(10**4):04}",
                "quantity": rng.randrange(900),
                "supplier": f"{rng.choice(LAST)} & {rng.choice(LAST)}",
                "unit_cost": round(rng.uniform(0.1, 90), 2),
            }
            for n in range(1000)
        ],
    )
    rows_to_csv(
        "flights.csv",
        [
            {
                "flight": f"TC{100 + n}",
                "from": rng.choice(CITIES),
                "to": rng.choice(CITIES),
                "gate": f"{rng.choice('ABC')}{rng.randrange(1, 60)}",
                "delay_minutes": rng.choice([0, 0, 0, 5, 12, 45, 130]),
                "captain": person(),
            }
            for n in range(900)
        ],
    )
    rows_to_csv(
        "tickets.csv",
        [
            {
                "ticket": f"HELP-{n + 1}",
                "opened_by": person(),
                "priority": rng.choice(["low", "normal", "high", "urgent"]),
                "topic": rng.choice(WORDS),
                "minutes_to_answer": rng.randrange(1, 4000),
                "closed": rng.choice(["yes", "no"]),
            }
            for n in range(1000)
        ],
    )
    levels = ["INFO"] * 40 + ["WARN"] * 3 + ["ERROR"]
    for name, unit in (("app", "worker"), ("gateway", "route"), ("billing", "charge"), ("sync", "batch")):
        lines = [
            f"{when(n, 1)} {rng.choice(levels)} {unit}-{rng.randrange(30)} request={rng.randrange(16**8):08x} took {rng.randrange(4000)} ms for {rng.choice(WORDS)}"
            for n in range(900)
        ]
        lines[rng.randrange(300, 600)] = (
            f"{when(450, 1)} FATAL {unit}-7 out of disk space on volume vol-{rng.randrange(1000):03}"
        )
        (folder / f"{name}.log").write_text("\n".join(lines), encoding="utf-8")
    lines = [
        f'10.0.{rng.randrange(9)}.{rng.randrange(250)} - - [{when(n, 1)}] "{rng.choice(["GET", "POST"])} /{rng.choice(WORDS)}/{rng.randrange(9999)} HTTP/1.1" {rng.choice([200, 200, 200, 304, 404, 500])} {rng.randrange(90000)}'
        for n in range(900)
    ]
    (folder / "access.log").write_text("\n".join(lines), encoding="utf-8")
    lines = [
        f"[{n:4}/1200] Compiling {rng.choice(WORDS)}_{rng.choice(WORDS)} v{rng.randrange(9)}.{rng.randrange(30)}.{rng.randrange(9)}"
        for n in range(1200)
    ]
    lines[777] = "error[E0382]: borrow of moved value: `ledger` at crates/billing/src/ledger.rs:214:17"
    (folder / "build.log").write_text("\n".join(lines), encoding="utf-8")
    chapters = [
        f"## {n}. The {rng.choice(WORDS)} of {rng.choice(CITIES)}\n\n"
        + "\n".join(" ".join(rng.choices(WORDS + CITIES, k=14)).capitalize() + "." for _ in range(14))
        + f"\n\nContact for chapter {n}: {person()}, extension {rng.randrange(1000, 9999)}.\n"
        for n in range(1, 61)
    ]
    (folder / "handbook.md").write_text("# Handbook\n\n" + "\n".join(chapters), encoding="utf-8")
    table = "\n".join(
        f"| {n} | {rng.choice(CITIES)} | {rng.choice(WORDS)} | {rng.randrange(10**5)} | {person()} |"
        for n in range(1000)
    )
    (folder / "regions.md").write_text(
        f"| id | city | product | units | manager |\n|---|---|---|---|---|\n{table}\n", encoding="utf-8"
    )
    with sqlite3.connect(folder / "shop.db") as database:
        for name in ("orders", "employees", "sensors", "inventory", "flights", "tickets"):
            with (folder / f"{name}.csv").open(encoding="utf-8") as file:
                header, *rows = csv.reader(file)
            columns = ", ".join(f'"{column}"' for column in header)
            database.execute(f"CREATE TABLE {name} ({columns})")
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(header))})", rows)


def write_history(folder: Path, seed: int = 21) -> None:
    """Create a git repository with 500 commits of sample authors."""
    rng = random.Random(seed)
    stream: list[str] = []
    for number in range(500):
        author = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        seconds = int((START + timedelta(hours=3 * number)).timestamp())
        message = f"{rng.choice(VERBS)} the {rng.choice(WORDS)} of the {rng.choice(WORDS)} page (#{2000 + number})"
        who = f"{author} <{author.split()[0].lower()}@example.com> {seconds} +0000"
        stream += ["commit refs/heads/main", f"author {who}", f"committer {who}", f"data {len(message)}", message]
        stream += ["M 100644 inline notes.txt", f"data {len(str(number))}", str(number)]
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input="\n".join(stream), text=True, check=True)


def export_repository(source: Path, folder: Path) -> None:
    """Copy the committed files of a repository."""
    folder.mkdir()
    archive = subprocess.run(["git", "-C", str(source), "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def list_calls(folder: Path, repository: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the calls: server, tool and arguments."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".csv", ".log", ".md"))
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("filesystem", "read_text_file", {"path": str(folder / name)}) for name in names
    ]
    sources = repository / "src" / "toolcrib"
    for package in (
        "search",
        "gateway/llm",
        "gateway/mcp/server",
        "hub",
        "config",
        "storage",
        "profiles",
        "cli",
        "encoder",
    ):
        files = sorted(str(path) for path in (sources / package).rglob("*.py"))[:14]
        calls.append(("filesystem", "read_multiple_files", {"paths": files}))
    pages = sorted(str(path) for path in (repository / "docs" / "reference").glob("*.md"))
    calls += [
        ("filesystem", "directory_tree", {"path": str(repository)}),
        ("filesystem", "search_files", {"path": str(repository), "pattern": "**/*"}),
        ("filesystem", "read_multiple_files", {"paths": pages}),
    ]
    for query in (
        "SELECT * FROM orders",
        "SELECT * FROM employees WHERE department = 'Legal' OR department = 'Sales'",
        "SELECT sensor, temperature, humidity, at FROM sensors",
        "SELECT * FROM inventory ORDER BY part",
        "SELECT * FROM flights WHERE delay_minutes > 0",
        "SELECT ticket, opened_by, minutes_to_answer FROM tickets",
        "SELECT city, customer, total FROM orders ORDER BY customer",
        "SELECT bin, part, unit_cost FROM inventory WHERE quantity + 0 < 700",
        "SELECT flight, captain, gate FROM flights",
        "SELECT name, office, hired, salary FROM employees",
        "SELECT ticket, topic, priority, closed FROM tickets WHERE closed = 'no' OR priority = 'urgent'",
        "SELECT order_id, status, ordered_at FROM orders",
        "SELECT customer, city, status FROM orders WHERE total + 0 > 100",
    ):
        calls.append(("sqlite", "read_query", {"query": query}))
    calls += [
        ("git", "git_log", {"repo_path": str(folder / "project"), "max_count": count}) for count in (300, 400, 480)
    ]
    return calls


async def record(options: argparse.Namespace) -> None:
    """Run the servers and write the recording."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "samples"
        folder.mkdir()
        write_samples(folder)
        write_history(folder / "project")
        repository = Path(temporary) / "repository"
        export_repository(options.repository, repository)
        filesystem = options.node_modules / "@modelcontextprotocol/server-filesystem/dist/index.js"
        commands = {
            "filesystem": ["node", str(filesystem), str(folder), str(repository)],
            "sqlite": [str(options.sqlite_server), "--db-path", str(folder / "shop.db")],
            "git": [str(options.git_server)],
        }
        recorded: list[dict[str, Any]] = []
        calls = list_calls(folder, repository)
        for server, command in commands.items():
            parameters = StdioServerParameters(command=command[0], args=command[1:])
            async with Client(stdio_client(parameters), mode="legacy") as client:
                for _, tool, arguments in (call for call in calls if call[0] == server):
                    result = await client.call_tool(tool, arguments)
                    text = "\n".join(part.text for part in result.content if part.type == "text")
                    shown = json.loads(json.dumps(arguments).replace(temporary, ""))
                    text = text.replace(temporary, "")
                    number = len(recorded) + 1
                    recorded.append(
                        {"id": f"r{number:02}", "server": server, "tool": tool, "arguments": shown, "text": text}
                    )
    RECORDING.write_bytes(gzip.compress(json.dumps(recorded).encode(), mtime=0))
    for entry in recorded:
        print(entry["id"], entry["server"], entry["tool"], json.dumps(entry["arguments"]), len(entry["text"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node-modules", type=Path, required=True)
    parser.add_argument("--git-server", type=Path, required=True)
    parser.add_argument("--sqlite-server", type=Path, required=True)
    parser.add_argument("--repository", type=Path, required=True)
    anyio.run(record, parser.parse_args())

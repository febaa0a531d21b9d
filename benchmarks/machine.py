"""Describe the machine of a measurement, and measure imports."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from benchmarks.vocabulary import split_words

TRIES = 5
HEAVY = split_words(
    """
    asyncio numpy scipy pydantic pydantic_core pydantic_ai mcp fastmcp httpx starlette uvicorn
    anyio click rich sqlite3 regex Stemmer tantivy bm25s rank_bm25 numba opentelemetry openai
    anthropic yaml jinja2 cryptography authlib griffe sqlalchemy tokenizers onnxruntime torch
    """
)
PROBE = """
import json, sys, time
before = set(sys.modules)
started = time.process_time()
{statement}
spent = time.process_time() - started
print(json.dumps([spent, sorted(set(sys.modules) - before)]))
"""


class Import(TypedDict):
    """The cost of an import statement in a new interpreter."""

    statement: str
    seconds: float
    modules: int
    heavy: list[str]


def describe_machine() -> dict[str, str]:
    """Return processor, memory, system and Python version, but not the name of the host."""
    return {
        "processor": _line("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": str(os.cpu_count()),
        "memory": f"{int(_line('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GB",
        "system": _system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def measure_import(statement: str) -> Import:
    """Return the CPU time of an import, the best of five new interpreters."""
    probe = [sys.executable, "-c", PROBE.format(statement=statement)]
    with tempfile.TemporaryDirectory() as cache:
        # Later interpreters use the compiled modules, as with an installed package.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        tries = [
            json.loads(subprocess.run(probe, check=True, capture_output=True, text=True, env=environment).stdout)
            for _ in range(TRIES)
        ]
    seconds, modules = min(tries)
    return Import(
        statement=statement, seconds=seconds, modules=len(modules), heavy=[name for name in HEAVY if name in modules]
    )


def _line(path: str, field: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""


def _system() -> str:
    release = platform.freedesktop_os_release()
    return f"{release.get('PRETTY_NAME', platform.system())}, {platform.machine()}"

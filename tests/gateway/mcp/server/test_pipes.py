"""Standard input and output as a client has them: pipes, or a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# Prints where it should not, then sends every message back, the last one large.
ECHO = """
import os, anyio
from mcp.server.stdio import stdio_server
from toolcrib.gateway.mcp.server.pipes import standard_pipes

async def main():
    async with standard_pipes() as pipes, stdio_server(*(pipes or ())) as (read, write):
        print("a stray line", flush=True)
        os.system("echo another")
        async with write:
            async for message in read:
                await write.send(message)

anyio.run(main)
print("after the end", flush=True)
"""
SMALL = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"text": "grüß\u2028Gott"}}
LARGE = {"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {"text": "x" * 1_000_000}}
SENT = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (SMALL, LARGE)).encode()


def echoed(**given: Any) -> list[bytes]:
    done = subprocess.run([sys.executable, "-c", ECHO], capture_output=True, timeout=300, **given)
    assert done.returncode == 0, done.stderr
    assert b"a stray line" in done.stderr and b"another" in done.stderr
    lines: list[bytes] = done.stdout.splitlines(keepends=True)
    return lines


def checked(lines: list[bytes]) -> None:
    *messages, last = lines
    assert [json.loads(line) for line in messages] == [SMALL, LARGE]
    assert last == b"after the end\n"


def test_pipes_carry_messages_alone_and_all_of_them() -> None:
    checked(echoed(input=SENT))


def test_a_file_can_be_read_too(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_bytes(SENT)
    with path.open("rb") as file:
        checked(echoed(stdin=file))


def test_a_client_that_leaves_is_no_fault() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ECHO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(SENT.partition(b"\n")[0] + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == SMALL
        process.stdout.close()
        process.stdin.close()
        assert b"ClosedResource" not in process.stderr.read()

"""Progress output on a terminal, tested with a pseudoterminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import COMMAND, WAIT_SECONDS, environment, server_entry, write_json

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudoterminal")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
SERVERS = {"quick": server_entry("echo", "other"), "gone": {"command": "no-such-program-anywhere"}}


def read_until(master: int, *words: str) -> str:
    """Read from the terminal until all words have been printed."""
    end = time.monotonic() + WAIT_SECONDS
    output = b""
    while not all(word in output.decode(errors="replace") for word in words):
        assert time.monotonic() < end, output
        try:
            output += os.read(master, 65_536)
        except OSError:
            # The process has closed the terminal.
            break
    return _STYLE.sub("", output.decode(errors="replace")).replace("\r\n", "\n")


def start(folder: Path, *arguments: str, **servers: Any) -> tuple[subprocess.Popen[bytes], int]:
    import pty

    path = write_json(folder / "toolcrib.json", {"mcpServers": servers})
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--config", str(path)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    return process, master


def test_serve_prints_one_line_per_started_server(tmp_path: Path) -> None:
    process, master = start(tmp_path, "serve", "--port", "0", **SERVERS)
    try:
        output = read_until(master, "quick: 2 tools", "gone is not reachable")
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
        os.close(master)
    assert re.search(r"^✓ quick: 2 tools \(\d of 2\)$", output, re.MULTILINE)
    # One line per server and no log records.
    assert output.count("quick") == 1
    assert output.count("gone is not reachable") == 1


def test_known_lazy_server_is_not_started(tmp_path: Path) -> None:
    lazy = {**SERVERS["quick"], "start": "lazy"}
    for line in ("✓ quick: 2 tools (1 of 1)", "· quick: 2 tools, starts on first use (1 of 1)"):
        process, master = start(tmp_path, "serve", "--port", "0", quick=lazy)
        try:
            assert line in read_until(master, "(1 of 1)")
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)
            os.close(master)


def test_doctor_prints_one_line_per_server(tmp_path: Path) -> None:
    broken = {"command": sys.executable, "args": ["-I", "-S", "-c", "raise SystemExit(3)"]}
    process, master = start(tmp_path, "doctor", quick=SERVERS["quick"], broken=broken)
    try:
        output = read_until(master, "(2 of 2)")
        assert process.wait(WAIT_SECONDS) == 1, output
    finally:
        os.close(master)
    assert re.search(r"✓ quick: 2 tools \(\d of 2\)", output)
    assert "Starting 2 servers …" in output
    # The line of a server is not repeated in the log.
    assert output.count("broken") == 1

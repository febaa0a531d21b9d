"""What a person sees while servers start: on a terminal, which is what a pseudoterminal is to us."""

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

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no pseudoterminals of this kind"
)
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
SERVERS = {
    "quick": server_entry("echo", "other"),
    "gone": {"command": "no-such-program-anywhere"},
}


def until_said(master: int, *words: str) -> str:
    """What is written to the terminal, until all of these words have been."""
    end = time.monotonic() + WAIT_SECONDS
    said = b""
    while not all(word in said.decode(errors="replace") for word in words):
        assert time.monotonic() < end, said
        try:
            said += os.read(master, 65_536)
        except OSError:
            # The other side has closed it.
            break
    return _STYLE.sub("", said.decode(errors="replace")).replace("\r\n", "\n")


def started(folder: Path, *arguments: str, **servers: Any) -> tuple[subprocess.Popen[bytes], int]:
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


def test_serve_tells_on_a_terminal_how_its_servers_come_up(tmp_path: Path) -> None:
    process, master = started(tmp_path, "serve", "--port", "0", **SERVERS)
    try:
        said = until_said(master, "quick: 2 tools", "gone is not reachable")
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
        os.close(master)
    assert re.search(r"^✓ quick: 2 tools \(\d of 2\)$", said, re.MULTILINE)
    # One line for each, not a log of every step.
    assert said.count("quick") == 1
    assert said.count("gone is not reachable") == 1


def test_a_server_that_is_known_and_lazy_is_told_without_being_started(tmp_path: Path) -> None:
    lazy = {**SERVERS["quick"], "start": "lazy"}
    for sign in ("✓ quick: 2 tools (1 of 1)", "· quick: 2 tools, started when needed (1 of 1)"):
        process, master = started(tmp_path, "serve", "--port", "0", quick=lazy)
        try:
            assert sign in until_said(master, "(1 of 1)")
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)
            os.close(master)


def test_doctor_tells_on_a_terminal_which_server_it_is_at(tmp_path: Path) -> None:
    broken = {"command": sys.executable, "args": ["-I", "-S", "-c", "raise SystemExit(3)"]}
    process, master = started(tmp_path, "doctor", quick=SERVERS["quick"], broken=broken)
    try:
        said = until_said(master, "(2 of 2)")
        assert process.wait(WAIT_SECONDS) == 1, said
    finally:
        os.close(master)
    assert re.search(r"✓ quick: 2 tools \(\d of 2\)", said)
    assert "Starting 2 servers …" in said
    # What the line of a server says is not logged as well.
    assert said.count("broken") == 1

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from toolcrib import __version__
from toolcrib.cli.main import main, toolcrib

SOURCE = Path(__file__).resolve().parents[2] / "src"
COMMAND = [sys.executable, "-m", "toolcrib"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), **more}


def run(*arguments: str, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, env=environment(**more))


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=environment(), **options)


def test_help_lists_all_commands() -> None:
    answer = CliRunner().invoke(toolcrib, ["--help"]).output
    with toolcrib.make_context("toolcrib", ["demo"]) as context:
        names = toolcrib.list_commands(context)
        width = max(map(len, names)) + 2
        for name in names:
            command = toolcrib.get_command(context, name)
            assert command is not None
            assert f"{name.ljust(width)}{command.get_short_help_str(100)}\n" in answer


def test_help_does_not_import_heavy_modules() -> None:
    script = (
        "import sys\n"
        "from toolcrib.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)\n"
        "print([name for name in sys.modules if 'toolcrib.core' in name], file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, env=environment(), text=True)
    assert "Commands:" in result.stdout
    top, core = result.stderr.splitlines()
    assert "'numpy'" not in top
    assert "'rich'" not in top
    assert core == "[]"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["search", "refund"], 0),
        (["search", "zzqxzz"], 0),
        (["search", "(refund", "--mode", "regex"], 1),
        (["search", "refund", "--catalog", "no such file"], 1),
        (["search", "refund", "--limit", "99999"], 2),
        (["search"], 2),
        (["search", "refund", "--limit", "0"], 2),
        (["search", "refund", "--mode", "guess"], 2),
        (["guess"], 2),
    ],
)
def test_exit_codes(arguments: list[str], status: int) -> None:
    result = run(*arguments)
    assert result.returncode == status
    assert b"Traceback" not in result.stderr
    assert bool(result.stdout) == (status == 0)


def test_error_is_one_line_on_standard_error() -> None:
    result = run("tools", "--catalog", "-", stdin=b'[\n{"name": 7}]')
    assert result.stdout == b""
    assert result.stderr.decode() == (
        "Error: standard input, line 2: an object with name: name must be text, not a number\n"
    )


def test_error_cannot_control_the_terminal() -> None:
    answer = CliRunner().invoke(toolcrib, ["tools", "--catalog", "\x1b[31mred\x1b[0m.json"])
    assert answer.output == "Error: red.json: there is no such file; check the path\n"


def test_closed_pipe_is_not_an_error() -> None:
    catalog = b"\n".join(b'{"name": "tool_%d"}' % number for number in range(20_000))
    with start("tools", "--catalog", "-") as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(catalog)
        process.stdin.close()
        assert process.stdout.readline() == b"tool_0\n"
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no descriptors to close before a start")
@pytest.mark.parametrize("arguments", [("tools",), ("tools", "--json"), ("--version",)])
def test_closed_standard_output_is_not_an_error(arguments: tuple[str, ...]) -> None:
    with start(*arguments, preexec_fn=partial(os.close, 1)) as process:
        assert process.stderr
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no descriptors to close before a start")
def test_closed_standard_input_is_empty() -> None:
    with start("tools", "--catalog", "-", preexec_fn=partial(os.close, 0)) as process:
        assert process.stderr
        message = b"Error: standard input: the file is empty; it should contain tools as JSON or JSON Lines\n"
        assert process.stderr.read() == message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("tools", "--json")])
def test_full_disk_is_one_line_on_standard_error(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment())
    assert result.returncode == 1
    assert result.stderr.decode().splitlines()[-1] == "Error: [Errno 28] No space left on device"
    assert b"Traceback" not in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send a signal to one process")
def test_interrupt_exits_with_130() -> None:
    # A shell in the background may have set interrupts to be ignored.
    enable_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with start("tools", "--catalog", "-", preexec_fn=enable_interrupts) as process:
        assert process.stdin and process.stderr
        # A pipe holds less than this, so afterwards the process is reading its input.
        process.stdin.write(b" " * 1_000_000)
        process.stdin.flush()
        while process.poll() is None:
            # A signal just before a blocking read is handled only with the next signal.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2)
        assert process.returncode == 130
        assert process.stderr.read() == b""


def test_interrupt_inside_a_command_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("toolcrib.cli.catalog.tools.open_catalog", interrupt)
    assert CliRunner().invoke(toolcrib, ["tools"]).exit_code == 130


def test_characters_that_the_terminal_does_not_support(tmp_path: Path) -> None:
    catalog = tmp_path / "tools.json"
    catalog.write_text('[{"name": "refund", "description": "Refund a charge → customer."}]', encoding="utf-8")
    result = run("search", "refund", "--catalog", str(catalog), PYTHONIOENCODING="latin-1")
    assert result.returncode == 0
    assert b"charge ? customer" in result.stdout
    printed = run("search", "refund", "--catalog", str(catalog), "--json", PYTHONIOENCODING="latin-1").stdout
    assert json.loads(printed.decode("utf-8"))


def test_colours_only_on_terminals_and_without_no_color() -> None:
    arguments = ["search", "refund"]
    assert "\x1b" not in CliRunner().invoke(toolcrib, arguments).stdout
    assert "\x1b" in CliRunner().invoke(toolcrib, arguments, color=True).stdout
    no_color = CliRunner(env={"NO_COLOR": "1"})
    assert "\x1b" not in no_color.invoke(toolcrib, arguments, color=True).stdout


def test_unknown_command() -> None:
    answer = CliRunner().invoke(toolcrib, ["guess"])
    assert answer.exit_code == 2
    assert "No such command 'guess'." in answer.stderr
    assert "No such command 'serch'. Did you mean 'search'?" in CliRunner().invoke(toolcrib, ["serch"]).stderr


def test_stdout_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr("sys.argv", ["toolcrib", "--help"])
    monkeypatch.setattr("sys.stdout", output)
    with pytest.raises(SystemExit):
        main()
    assert output.getvalue().startswith("Usage: toolcrib")


def test_version() -> None:
    answer = CliRunner().invoke(toolcrib, ["--version"], prog_name="toolcrib")
    assert answer.stdout == f"toolcrib {__version__}\n"


def test_main_runs_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["toolcrib", "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: toolcrib [OPTIONS] COMMAND")

from __future__ import annotations

import re

from click.testing import CliRunner

from toolcrib.cli.main import toolcrib


def demo(columns: int = 100, color: bool = False) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(toolcrib, ["demo"], color=color)
    assert result.exit_code == 0
    return result.stdout


def test_queries_are_printed_with_scores_and_reasons() -> None:
    output = demo()
    assert "> refund a charge\n" in output
    assert re.search(r"^\d\.\d\d  payments___refund_charge +\w", output, re.MULTILINE)
    assert "refund (name " in output


def test_estimated_savings_are_printed() -> None:
    total, hits = (int(number.replace(",", "")) for number in re.findall(r"about +([\d,]+) tokens", demo()))
    assert 0 < hits < total / 10
    assert re.search(r"saved +about +9\d%", demo())


def test_printed_commands_work() -> None:
    *_, head, first, second = demo().splitlines()
    assert head == "Try it yourself:"
    assert first.startswith("  toolcrib search ")
    assert "--catalog" in second
    words = re.findall(r'"([^"]+)"', first)
    answer = CliRunner().invoke(toolcrib, ["search", *words, "--explain"])
    assert "calendar___reschedule_event" in answer.stdout.splitlines()[0]


def test_output_fits_a_narrow_terminal_except_for_the_commands() -> None:
    assert all(len(line) <= 40 for line in demo(columns=40).splitlines()[:-2])


def test_output_has_colours_on_a_terminal() -> None:
    assert "\x1b[" in demo(color=True)

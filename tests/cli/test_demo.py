from __future__ import annotations

import re

from click.testing import CliRunner

from toolcrib.cli.main import toolcrib


def demo(columns: int = 100, color: bool = False) -> str:
    answer = CliRunner(env={"COLUMNS": str(columns)}).invoke(toolcrib, ["demo"], color=color)
    assert answer.exit_code == 0
    return answer.stdout


def test_the_demo_shows_queries_with_scores_and_reasons() -> None:
    shown = demo()
    assert "> refund a charge\n" in shown
    assert re.search(r"^\d\.\d\d  payments___refund_charge +\w", shown, re.MULTILINE)
    assert "refund (name " in shown


def test_the_demo_says_what_is_saved_and_that_it_is_an_estimate() -> None:
    everything, hits = (
        int(number.replace(",", "")) for number in re.findall(r"about +([\d,]+) tokens", demo())
    )
    assert 0 < hits < everything / 10
    assert re.search(r"saved +about +9\d%", demo())


def test_the_demo_ends_with_two_commands_that_work_as_they_stand() -> None:
    *_, head, first, second = demo().splitlines()
    assert head == "Now you:"
    assert first.startswith("  toolcrib search ")
    assert "--catalog" in second
    words = re.findall(r'"([^"]+)"', first)
    answer = CliRunner().invoke(toolcrib, ["search", *words, "--explain"])
    assert "calendar___reschedule_event" in answer.stdout.splitlines()[0]


def test_the_demo_fits_a_narrow_terminal_but_for_the_commands_to_copy() -> None:
    assert all(len(line) <= 40 for line in demo(columns=40).splitlines()[:-2])


def test_the_demo_is_in_colour_on_a_terminal() -> None:
    assert "\x1b[" in demo(color=True)

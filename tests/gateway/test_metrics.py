"""What is measured is told as Prometheus reads it."""

from __future__ import annotations

from threading import Thread

import pytest

from toolcrib.errors import InvalidConfig
from toolcrib.gateway.metrics import MAX_SERIES, MetricsRegistry


def test_counters_gauges_and_histograms_are_told() -> None:
    metrics = MetricsRegistry()
    calls = metrics.counter("toolcrib_calls_total", "Calls.", "server")
    calls.add(server="mail")
    calls.add(2.5, server='a "b"\\\n')
    calls.add(-5, server="mail")
    metrics.gauge("toolcrib_tools", "Tools.").set(7)
    seconds = metrics.histogram("toolcrib_seconds", "Time.", "door", bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 3.0):
        seconds.observe(value, door="/mcp")
    assert metrics.render().splitlines() == [
        "# HELP toolcrib_calls_total Calls.",
        "# TYPE toolcrib_calls_total counter",
        'toolcrib_calls_total{server="a \\"b\\"\\\\\\n"} 2.5',
        'toolcrib_calls_total{server="mail"} 1',
        "# HELP toolcrib_seconds Time.",
        "# TYPE toolcrib_seconds histogram",
        'toolcrib_seconds_bucket{door="/mcp",le="0.1"} 2',
        'toolcrib_seconds_bucket{door="/mcp",le="1"} 3',
        'toolcrib_seconds_bucket{door="/mcp",le="+Inf"} 4',
        'toolcrib_seconds_sum{door="/mcp"} 3.65',
        'toolcrib_seconds_count{door="/mcp"} 4',
        "# HELP toolcrib_tools Tools.",
        "# TYPE toolcrib_tools gauge",
        "toolcrib_tools 7",
    ]


def test_a_gauge_forgets_what_is_gone() -> None:
    metrics = MetricsRegistry()
    up = metrics.gauge("up", "Whether it is up.", "server")
    up.set(1, server="mail")
    up.clear()
    assert 'server="mail"' not in metrics.render()


def test_labels_that_others_choose_are_bounded() -> None:
    metrics = MetricsRegistry()
    calls = metrics.counter("calls", "Calls.", "tool")
    for number in range(MAX_SERIES + 50):
        calls.add(tool=f"tool {number}")
    calls.add(tool="x" * 10_000)
    calls.add(tool="tool 3")
    text = metrics.render()
    assert text.count("\n") == 2 + MAX_SERIES + 1
    assert 'calls{tool="other"} 51' in text
    assert 'calls{tool="tool 3"} 2' in text
    assert max(map(len, text.splitlines())) < 300


def test_a_metric_asked_for_twice_is_the_same_one() -> None:
    metrics = MetricsRegistry()
    metrics.counter("calls", "Calls.", "tool").add(tool="a")
    metrics.counter("calls", "Calls.", "tool").add(tool="a")
    assert 'calls{tool="a"} 2' in metrics.render()
    with pytest.raises(InvalidConfig, match="is a counter"):
        metrics.gauge("calls", "Calls.", "tool")
    with pytest.raises(InvalidConfig, match="with the labels"):
        metrics.counter("calls", "Calls.", "server")


def test_names_and_labels_that_are_wrong_say_so() -> None:
    metrics = MetricsRegistry()
    with pytest.raises(InvalidConfig, match="letters, digits"):
        metrics.counter("bad name", "Bad.")
    with pytest.raises(InvalidConfig, match="has the labels"):
        metrics.counter("calls", "Calls.", "tool").add(server="a")


def test_half_a_character_can_be_told() -> None:
    metrics = MetricsRegistry()
    metrics.counter("calls", "Calls.", "tool").add(tool="\ud800")
    metrics.render().encode()


def test_threads_count_together() -> None:
    counter = MetricsRegistry().counter("calls", "Calls.")

    def count() -> None:
        for _ in range(2_000):
            counter.add()

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(counter.lines())[-1] == "calls 8000"

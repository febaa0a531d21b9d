"""Metrics are rendered in the Prometheus text format and bounded in number."""

from __future__ import annotations

from threading import Thread

import pytest

from toolcrib.gateway.metrics import MAX_SERIES, MetricsRegistry


def test_counters_gauges_and_histograms_are_rendered() -> None:
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
        'toolcrib_calls_total{server="mail"} 1.0',
        'toolcrib_calls_total{server="a \\"b\\"\\\\\\n"} 2.5',
        "# HELP toolcrib_tools Tools.",
        "# TYPE toolcrib_tools gauge",
        "toolcrib_tools 7.0",
        "# HELP toolcrib_seconds Time.",
        "# TYPE toolcrib_seconds histogram",
        'toolcrib_seconds_bucket{door="/mcp",le="0.1"} 2.0',
        'toolcrib_seconds_bucket{door="/mcp",le="1.0"} 3.0',
        'toolcrib_seconds_bucket{door="/mcp",le="+Inf"} 4.0',
        'toolcrib_seconds_count{door="/mcp"} 4.0',
        'toolcrib_seconds_sum{door="/mcp"} 3.65',
    ]


def test_cleared_gauge_has_no_series() -> None:
    metrics = MetricsRegistry()
    up = metrics.gauge("up", "Whether it is up.", "server")
    up.set(1, server="mail")
    up.clear()
    assert 'server="mail"' not in metrics.render()


def test_number_and_length_of_label_values_are_bounded() -> None:
    metrics = MetricsRegistry()
    calls = metrics.counter("calls_total", "Calls.", "tool")
    for number in range(MAX_SERIES + 50):
        calls.add(tool=f"tool {number}")
    calls.add(tool="x" * 10_000)
    calls.add(tool="tool 3")
    text = metrics.render()
    assert text.count("\n") == 2 + MAX_SERIES + 1
    assert 'calls_total{tool="other"} 51.0' in text
    assert 'calls_total{tool="tool 3"} 2.0' in text
    assert max(map(len, text.splitlines())) < 300


def test_long_label_value_is_cut() -> None:
    metrics = MetricsRegistry()
    metrics.counter("calls_total", "Calls.", "tool").add(tool="x" * 10_000)
    assert max(map(len, metrics.render().splitlines())) < 300


def test_each_registry_has_its_own_metrics() -> None:
    first, second = MetricsRegistry(), MetricsRegistry()
    first.counter("calls_total", "Calls.").add()
    second.counter("calls_total", "Calls.")
    assert "calls_total 1.0" in first.render()
    assert "calls_total 0.0" in second.render()
    with pytest.raises(ValueError, match="Duplicated"):
        first.gauge("calls_total", "Calls.")


def test_unknown_label_is_an_error() -> None:
    metrics = MetricsRegistry()
    with pytest.raises(ValueError, match="has the labels"):
        metrics.counter("other_total", "Calls.", "tool").add(server="a")


def test_lone_surrogate_in_a_label_is_rendered() -> None:
    metrics = MetricsRegistry()
    metrics.counter("calls_total", "Calls.", "tool").add(tool="\ud800")
    assert 'tool="?"' in metrics.render()


def test_threads_share_a_counter() -> None:
    metrics = MetricsRegistry()
    counter = metrics.counter("calls_total", "Calls.")

    def count() -> None:
        for _ in range(2_000):
            counter.add()

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.render().splitlines()[-1] == "calls_total 8000.0"

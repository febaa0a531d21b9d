"""Prometheus metrics with a bounded number of series."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

import prometheus_client

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Label values may be names that clients or servers chose. Series over the limit count as "other".
MAX_SERIES: Final = 1_000
MAX_LABEL_CHARS: Final = 200
SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_OTHER: Final = "other"

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class _BoundedMetric:
    """A Prometheus metric with at most `MAX_SERIES` series."""

    def __init__(self, metric: Any, name: str, labels: Sequence[str]) -> None:
        self.name = name
        self._metric = metric
        self._labels = tuple(labels)
        self._lock = Lock()
        self._series: set[tuple[str, ...]] = set()

    def _get_series(self, labels: dict[str, str]) -> Any:
        if labels.keys() != set(self._labels):
            raise ValueError(f"{self.name} has the labels {self._labels}, not {tuple(labels)}")
        if not labels:
            return self._metric
        # A label is short and can be encoded.
        cut = (labels[name][:MAX_LABEL_CHARS] for name in self._labels)
        values = tuple(value.encode("utf-8", "replace").decode() for value in cut)
        with self._lock:
            if values not in self._series and len(self._series) >= MAX_SERIES:
                values = (_OTHER,) * len(values)
            self._series.add(values)
        return self._metric.labels(*values)


class CounterMetric(_BoundedMetric):
    """A number that only grows."""

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """Add to the series with these label values; ignore negative amounts."""
        self._get_series(labels).inc(max(amount, 0.0))


class GaugeMetric(_BoundedMetric):
    """A number that can go up and down."""

    def set(self, value: float, **labels: str) -> None:
        """Set the series with these label values."""
        self._get_series(labels).set(value)

    def clear(self) -> None:
        """Remove all series, for example of servers that are gone."""
        with self._lock:
            self._series.clear()
            self._metric.clear()


class HistogramMetric(_BoundedMetric):
    """Counts of values by bucket, and their sum."""

    def observe(self, value: float, **labels: str) -> None:
        """Count a value in the series with these label values."""
        self._get_series(labels).observe(value)


class MetricsRegistry:
    """The metrics of one application."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()

    def counter(self, name: str, help: str, *labels: str) -> CounterMetric:
        """Create a counter. Its name must end in `_total`."""
        metric = prometheus_client.Counter(name, help, labels, registry=self._registry)
        return CounterMetric(metric, name, labels)

    def gauge(self, name: str, help: str, *labels: str) -> GaugeMetric:
        """Create a gauge."""
        metric = prometheus_client.Gauge(name, help, labels, registry=self._registry)
        return GaugeMetric(metric, name, labels)

    def histogram(self, name: str, help: str, *labels: str, bounds: Sequence[float] = SECONDS) -> HistogramMetric:
        """Create a histogram with the upper bounds of its buckets."""
        metric = prometheus_client.Histogram(name, help, labels, registry=self._registry, buckets=bounds)
        return HistogramMetric(metric, name, labels)

    def render(self) -> str:
        """Return all metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self._registry).decode()

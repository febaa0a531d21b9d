"""Counters, gauges and histograms, told in the text format that Prometheus reads."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Final, TypeVar

from toolcrib.errors import InvalidConfig

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Labels may come from names that others chose: what goes over the limit is counted as "other".
MAX_SERIES: Final = 1_000
MAX_LABEL_CHARS: Final = 200
SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_OTHER: Final = "other"
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

M = TypeVar("M", bound="Metric")


class Metric:
    """One thing that is measured, as a series of numbers for each set of label values."""

    kind = ""

    def __init__(self, name: str, help: str, labels: Sequence[str], size: int) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._size = size
        self._lock = Lock()
        self._series: dict[tuple[str, ...], list[float]] = {}

    def _numbers(self, labels: dict[str, str]) -> list[float]:
        """The numbers for these label values; called with the lock held."""
        if labels.keys() != set(self.labels):
            raise InvalidConfig(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        key = tuple(str(labels[name])[:MAX_LABEL_CHARS] for name in self.labels)
        if key not in self._series and len(self._series) >= MAX_SERIES:
            key = (_OTHER,) * len(key)
        return self._series.setdefault(key, [0.0] * self._size)

    def lines(self) -> Iterator[str]:
        """The metric in Prometheus' text format, in order of its labels."""
        with self._lock:
            series = sorted((key, tuple(numbers)) for key, numbers in self._series.items())
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for key, numbers in series:
            yield from self._told(list(zip(self.labels, key, strict=True)), numbers)

    def _told(self, labels: list[tuple[str, str]], numbers: Sequence[float]) -> Iterator[str]:
        yield f"{self.name}{_braced(labels)} {_number(numbers[0])}"


class Counter(Metric):
    """A number that only grows."""

    kind = "counter"

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """Add to the series with these label values."""
        with self._lock:
            self._numbers(labels)[0] += max(amount, 0.0)


class Gauge(Metric):
    """A number that goes up and down."""

    kind = "gauge"

    def set(self, value: float, **labels: str) -> None:
        """Set the series with these label values."""
        with self._lock:
            self._numbers(labels)[0] = value

    def clear(self) -> None:
        """Forget all series, such as those of servers that are gone."""
        with self._lock:
            self._series.clear()


class Histogram(Metric):
    """How many values there were up to each of some bounds, their number and their sum."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float] = SECONDS
    ) -> None:
        self._bounds = tuple(sorted(bounds))
        super().__init__(name, help, labels, len(self._bounds) + 2)

    def observe(self, value: float, **labels: str) -> None:
        """Count a value."""
        with self._lock:
            numbers = self._numbers(labels)
            numbers[bisect_left(self._bounds, value)] += 1
            numbers[-1] += value

    def _told(self, labels: list[tuple[str, str]], numbers: Sequence[float]) -> Iterator[str]:
        *counts, total = numbers
        sums = list(accumulate(counts))
        for bound, count in zip([*map(_number, self._bounds), "+Inf"], sums, strict=True):
            yield f"{self.name}_bucket{_braced([*labels, ('le', bound)])} {_number(count)}"
        yield f"{self.name}_sum{_braced(labels)} {_number(total)}"
        yield f"{self.name}_count{_braced(labels)} {_number(sums[-1])}"


class MetricsRegistry:
    """All that is measured in one process. Asking for a metric twice gives the same one."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._lock = Lock()

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        """The counter of this name."""
        return self._known(Counter(name, help, labels, 1))

    def gauge(self, name: str, help: str, *labels: str) -> Gauge:
        """The gauge of this name."""
        return self._known(Gauge(name, help, labels, 1))

    def histogram(
        self, name: str, help: str, *labels: str, bounds: Sequence[float] = SECONDS
    ) -> Histogram:
        """The histogram of this name."""
        return self._known(Histogram(name, help, labels, bounds))

    def render(self) -> str:
        """Everything, in Prometheus' text format."""
        with self._lock:
            metrics = sorted(self._metrics.items())
        return "".join(f"{line}\n" for _, metric in metrics for line in metric.lines())

    def _known(self, metric: M) -> M:
        if not all(map(_NAME.fullmatch, (metric.name, *metric.labels))):
            raise InvalidConfig(
                f"{metric.name!r}: names of metrics and labels are letters, digits, _"
            )
        with self._lock:
            known = self._metrics.setdefault(metric.name, metric)
        if not isinstance(known, type(metric)) or known.labels != metric.labels:
            raise InvalidConfig(f"{metric.name} is a {known.kind} with the labels {known.labels}")
        return known


def _braced(labels: Sequence[tuple[str, str]]) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"
        if labels
        else ""
    )


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text.encode("utf-8", "replace").decode()


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)

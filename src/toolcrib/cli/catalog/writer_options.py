"""The options of commands that let a model write requests."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from toolcrib.enrichment.writer import MAX_JOBS, TIMEOUT_SECONDS, RequestWriter


class WriterOptions:
    """Which model writes requests. The writer is built on use, because a command may not need it."""

    def __init__(
        self, *, model_url: str | None, model: str | None, key_env: str, timeout_seconds: float, jobs: int
    ) -> None:
        self._url = model_url
        self._model = model
        self._key_env = key_env
        self._timeout_seconds = timeout_seconds
        self.jobs = jobs

    def build_writer(self) -> RequestWriter:
        """Return the writer of these options."""
        if not self._url or not self._model:
            raise click.UsageError(
                "--model-url and --model are needed, for example: --model-url http://localhost:11434/v1 --model qwen3"
            )
        key = os.environ.get(self._key_env, "")
        return RequestWriter(self._url, self._model, key=key, timeout_seconds=self._timeout_seconds)


def writer_options(callback: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the model to a command, which gets them as one `writer` argument."""

    @click.option("--model-url", metavar="URL", help="Base URL of an OpenAI-compatible API, with its /v1.")
    @click.option("--model", metavar="NAME", help="Model that writes the requests.")
    @click.option(
        "--key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="Environment variable with the API key.  [default: OPENAI_API_KEY]",
    )
    @click.option(
        "--timeout",
        "timeout_seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="Time for one answer of the model.  [default: 60]",
    )
    @click.option(
        "--jobs",
        type=click.IntRange(1, MAX_JOBS),
        default=1,
        metavar="N",
        help="How many answers of the model to wait for at a time.  [default: 1]",
    )
    @wraps(callback)
    def build_options(
        model_url: str | None, model: str | None, key_env: str, timeout_seconds: float, jobs: int, **others: Any
    ) -> None:
        writer = WriterOptions(
            model_url=model_url, model=model, key_env=key_env, timeout_seconds=timeout_seconds, jobs=jobs
        )
        callback(writer=writer, **others)

    return build_options

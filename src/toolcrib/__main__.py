"""Run the `toolcrib` command with `python -m toolcrib`."""

from __future__ import annotations

from toolcrib.cli.main import main

main()

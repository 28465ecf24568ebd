"""A PostgreSQL of the demo's own: its programs are found on this machine, its data is temporary.

It runs as an ordinary user, answers on a Unix socket that this user alone reaches, and does not
sync. Knows: programs of PostgreSQL. Does not know: what is kept in it, and psycopg.
Source: https://www.postgresql.org/docs/current/reference-server.html.
"""

import asyncio
import os
import pwd
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from app_server.clients.demo.process import RUN_S, START_S, run_to_end
from app_server.clients.demo.transcript import NotInstalled

OLDEST = 15
PROGRAMS = ("initdb", "postgres", "pg_isready", "createuser", "createdb")
PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
"""Where packages put the programs besides PATH: Debian, Fedora and PGDG, Homebrew, Postgres.app."""

NOT_FOUND = (
    f"PostgreSQL {OLDEST} or newer was not found; install it (Debian, Ubuntu: apt-get install "
    "postgresql; Fedora: dnf install postgresql-server postgresql-contrib; macOS: brew install "
    "postgresql@17), or put the folder of its programs in PATH"
)
FOLDER = "/tmp"  # noqa: S108 - mkdtemp makes a folder of its own there
"""Not TMPDIR: the path of a socket has at most 103 bytes on macOS, and other users get here."""
PORT = 5432
USERS = ("postgres", "nobody")
"""Users that run PostgreSQL when root starts the demo, the first one that there is."""
POLL_S = 0.05
STOP_S = 30.0
MAX_LOG_CHARS = 2_000

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "shared_buffers": "16MB",
    "fsync": "off",
    "full_page_writes": "off",
}


class Cluster:
    """A server of databases that runs."""

    def __init__(self, programs: Path, folder: Path, user: Mapping[str, Any]) -> None:
        """`programs` is their folder, `folder` holds data and socket; `user` is of subprocesses."""
        self._programs = programs
        self._user = user
        self.folder = folder

    async def run(self, name: str, *words: str, wait_s: float = RUN_S) -> str:
        """Run a program of PostgreSQL to its end; returns what it said.

        Raises:
            RuntimeError: it failed; the text has what it said.
            TimeoutError: it did not end within `wait_s`.
        """
        program = str(self._programs / name)
        options = {"env": _environment(), "cwd": self.folder, **self._user}
        return await run_to_end(program, *words, wait_s=wait_s, **options)

    async def administer(self, name: str, *words: str) -> None:
        """Run a client program as the administrator of the cluster."""
        await self.run(name, *self._place, "--username=postgres", *words)

    def url(self, role: str, database: str) -> str:
        """Return the URL of a database, as `store` of `config.toml` has it."""
        return f"postgresql://{role}@/{database}?host={self.folder}&port={PORT}"

    @property
    def _place(self) -> tuple[str, str]:
        return f"--host={self.folder}", f"--port={PORT}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make the data, and run the server while the context lasts.

        Raises:
            RuntimeError: it could not be made, or ended by itself; TimeoutError: it does not
                answer.
        """
        data, log_file = self.folder / "data", self.folder / "log"
        made = ("--username=postgres", "--encoding=UTF8", "--locale=C", "--auth=trust", "--no-sync")
        await self.run("initdb", f"--pgdata={data}", "--wal-segsize=1", *made)
        settings = {**SETTINGS, "unix_socket_directories": str(self.folder)}
        with log_file.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(str(self._programs / "postgres"), "-D", str(data)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                cwd=self.folder, start_new_session=True, **self._user,
            )  # fmt: skip
        try:
            await self._wait_until_ready(process, log_file)
            yield
        finally:
            await _stop(process)

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, log_file: Path) -> None:
        try:
            async with asyncio.timeout(START_S):
                while process.returncode is None:
                    with suppress(RuntimeError):
                        await self.run("pg_isready", *self._place)
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError as exc:
            raise TimeoutError(f"PostgreSQL did not answer in {START_S:g} s") from exc
        raise RuntimeError(f"PostgreSQL ended before it was ready:\n{_end_of(log_file)}")


@asynccontextmanager
async def running_cluster(programs: Path, user: Mapping[str, Any]) -> AsyncIterator[Cluster]:
    """Run a PostgreSQL in a folder of its own, which is removed afterwards.

    `programs` is the folder that `find_programs` gave for this user.

    Raises:
        RuntimeError: it could not be made; TimeoutError: not in time.
    """
    folder = Path(tempfile.mkdtemp(prefix="app-server-demo-", dir=FOLDER))
    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        cluster = Cluster(programs, folder, user)
        async with cluster.running():
            yield cluster
    finally:
        shutil.rmtree(folder)


async def find_programs(user: Mapping[str, Any], places: Sequence[str] = PLACES) -> Path:
    """Return the folder of PostgreSQL's programs: that of PATH, else the newest of `places`.

    `user` has the options of a subprocess that runs them; places are absolute patterns.

    Raises:
        NotInstalled: none has all of PROGRAMS in a version that is new enough.
    """
    in_path = shutil.which("initdb")
    if in_path is not None and await _version(Path(in_path).parent, user) >= OLDEST:
        return Path(in_path).parent
    versions = {folder: await _version(folder, user) for folder in _folders(places)}
    newest = max(versions, key=lambda folder: versions[folder], default=None)
    if newest is None or versions[newest] < OLDEST:
        raise NotInstalled(NOT_FOUND)
    return newest


def _folders(places: Sequence[str]) -> list[Path]:
    return [folder for place in places for folder in sorted(Path("/").glob(place[1:]))]


async def _version(folder: Path, user: Mapping[str, Any]) -> int:
    """Return the major version of the programs in a folder; 0 if some are not there."""
    if not all(os.access(folder / name, os.X_OK) for name in PROGRAMS):
        return 0
    try:
        said = await run_to_end(
            *(str(folder / "postgres"), "--version"), env=_environment(), cwd="/", **user
        )
    except (OSError, RuntimeError):
        # The user of the cluster may not run it.
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(found[1]) if found else 0


def ordinary_user() -> dict[str, Any]:
    """Return options of a subprocess that runs as somebody else than root, which is refused.

    Raises:
        NotInstalled: root runs the demo, and there is nobody else.
    """
    if os.geteuid() != 0:
        return {}
    for name in USERS:
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NotInstalled(
        "PostgreSQL refuses to run as root, and there is no user postgres or nobody; run the demo "
        "as another user"
    )


def _end_of(log_file: Path) -> str:
    return log_file.read_text(errors="replace")[-MAX_LOG_CHARS:]


def _environment() -> dict[str, str]:
    # Variables of the user's, such as PGPORT, are about other databases.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the server at once: nothing in it is kept."""
    for number in (signal.SIGQUIT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await process.wait()
                return

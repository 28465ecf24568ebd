"""A PostgreSQL of the tests' own: one cluster a test process, one database a test.

The cluster runs as an ordinary user, answers on a Unix socket alone, and does not sync: it dies
with the process of the tests. Tests that ask for it fail where its programs are missing.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg

from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.migrations import migrate

START_S = 120.0
ROLE = "tests"
TEMPLATE = "migrated"
_DEBIAN = Path("/usr/lib/postgresql")
_USERS = ("postgres", "nobody")


def program(name: str) -> str:
    """Find a program of the server, in PATH or where Debian has it, the newest first."""
    if found := shutil.which(name):
        return found
    for folder in sorted(_DEBIAN.glob("*/bin"), key=lambda path: -float(path.parent.name)):
        if (folder / name).exists():
            return str(folder / name)
    raise AssertionError(f"{name} is missing; on Debian: apt-get install postgresql")


@dataclass(frozen=True)
class Cluster:
    """A running server of databases."""

    folder: Path
    numbers: Iterator[int]

    def url(self, database: str, role: str = ROLE) -> str:
        """Return the URL of a database, as settings have it."""
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def administer(self, statement: str, database: str = "postgres") -> None:
        """Run a statement as the administrator."""
        with psycopg.connect(self.url(database, "postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def database(self, template: str = TEMPLATE) -> Iterator[str]:
        """Make a database that is empty but for its tables; its URL."""
        name = f"test{next(self.numbers)}"
        self.administer(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {ROLE}")
        try:
            yield self.url(name)
        finally:
            self.administer(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running_cluster(*options: str, fsync: bool = False) -> Iterator[Cluster]:
    """Run a cluster in a folder of its own; `options` are settings of the server."""
    folder = Path(tempfile.mkdtemp(prefix="postgresql-of-tests-"))
    as_user: list[str] = []
    if os.getuid() == 0:
        user = next(pwd.getpwnam(name) for name in _USERS if _is_user(name))
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = folder / "data"
    # It ends with this process, however that ends.
    prefix = ["setpriv", *as_user, "--pdeathsig", "INT", "--"]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(folder)}
    made = subprocess.run(
        [*prefix, program("initdb"), "-D", str(data), "-U", "postgres", "-E", "UTF8", "-N",
         "--locale=C.UTF-8", "-A", "trust"],
        check=False, capture_output=True, text=True, env=environment, cwd=folder,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    settings = [f"unix_socket_directories={folder}", "listen_addresses=", "max_connections=100"]
    settings += ["shared_buffers=32MB", f"fsync={'on' if fsync else 'off'}"]
    settings += ["full_page_writes=on"] if fsync else ["full_page_writes=off"]
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [*prefix, program("postgres"), "-D", str(data)]
        + [part for setting in (*settings, *options) for part in ("-c", setting)],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=folder,
    )  # fmt: skip
    try:
        cluster = Cluster(folder, count(1))
        _wait(cluster, server, folder / "log")
        yield cluster
    finally:
        # At once: nothing in it is kept.
        server.send_signal(signal.SIGQUIT)
        server.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _wait(cluster: Cluster, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            cluster.administer("SELECT 1")
        except psycopg.OperationalError as exc:
            if server.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text()) from exc
            time.sleep(0.02)
        else:
            return


def prepare(cluster: Cluster) -> None:
    """Make the role of the tests, and the database that those of the tests are copies of."""
    cluster.administer(f"CREATE ROLE {ROLE} LOGIN")
    for name in ("empty", TEMPLATE):
        cluster.administer(f"CREATE DATABASE {name} OWNER {ROLE}")
    migrate(Database(cluster.url(TEMPLATE)))

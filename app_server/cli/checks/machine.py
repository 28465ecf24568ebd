"""Machine of a home, and the checks of it: clock, disk, limits, keyring, sandbox, ports.

Space is one thing that a disk can lack; quotas, entries of folders and disks that turned read-only
are others. So something is written: to a file without a name, which vanishes with its descriptor.
"""

import errno
import heapq
import os
import resource
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app_server.accounts.account_settings import read_account_settings
from app_server.config.config_toml import profile_file, read_config, with_profile
from app_server.config.effective import ConfigSources, Configuration
from app_server.config.requirements import SYSTEM_REQUIREMENTS
from app_server.config.values import Config, ConfigError
from app_server.host.listening import PROC, listener_of
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.probe import SandboxProbe, probe
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.runtime.files.secret import StoreFailed, keyring_failures, load_keyring
from app_server.threads.checks import Check
from app_server.transport.address import TcpAddress, UnixAddress, parse_address
from app_server.transport.socket_file import LINK_TO_NOTHING, MAX_PATH_BYTES, NO_FOLDER, TOO_LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A home, and the machine around it. Only tests have other than the defaults."""

    home: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Of config.toml, from the command line."""
    profile: str | None = None
    """The name of the profile that a server is to be started with."""
    listen: Sequence[str] = ()
    """Addresses that a server is to listen on."""
    requirements: Path = SYSTEM_REQUIREMENTS
    cwd: Path = field(default_factory=Path.cwd)
    now_s: Callable[[], float] = time.time
    """Unix seconds."""
    sandbox: MachineSandbox = field(default_factory=MachineSandbox)
    progress: Callable[[str], None] = lambda _: None
    """Is called with what takes long."""

    @property
    def config_file(self) -> Path:
        """Path of the user's config.toml, whether it exists or not."""
        return self.home / "config.toml"

    @property
    def profile_file(self) -> Path | None:
        """Path of the profile, whether it exists or not.

        Raises:
            ConfigError: it cannot be the name of a profile.
        """
        return None if self.profile is None else profile_file(self.home, self.profile)

    def read_files(self) -> Config:
        """Read config.toml and the profile over it, without the overrides. Blocks.

        Raises:
            ConfigError: one of them cannot be used.
        """
        config = read_config(self.config_file)
        if self.profile is None or self.profile_file is None:
            return config
        return with_profile(config, self.profile, self.profile_file)

    def configuration(
        self, is_signed_in: Callable[[], Awaitable[bool]] | None = None
    ) -> Configuration:
        """Make the configuration as a server does."""
        sources = ConfigSources(
            self.home, self.cwd, self.requirements, self.overrides, self.profile
        )
        return Configuration(sources, is_signed_in)


EARLIEST = datetime(2026, 6, 1, tzinfo=UTC)
"""Before this version was written."""
LATEST = datetime(2056, 1, 1, tzinfo=UTC)
TOLERATED_S = 120.0
"""By which a file may be from the future: other machines may write to a shared disk."""
NEWEST_DAYS = 2
"""Newest day folders of threads that are looked at."""
MAX_FILES = 10_000
CLOCK_ADVICE = "set the clock, and have it kept right (timedatectl set-ntp true)"


def check_clock(machine: Machine) -> Check:
    """Compare the clock with when this version was written, and with the newest files."""
    now_s = machine.now_s()
    now = datetime.fromtimestamp(now_s, UTC)
    check = Check("clock", message=f"{now:%Y-%m-%d %H:%M:%S} UTC")
    if not EARLIEST <= now <= LATEST:
        check.add("error", f"it says {now:%Y}, which cannot be: certificates and tokens will fail")
        check.advise(CLOCK_ADVICE)
    newest = max(_times(machine.home), default=None)
    if newest is not None and newest[0] > now_s + TOLERATED_S:
        ahead_s = newest[0] - now_s
        check.add(
            "warning", f"{newest[1]} was written {_span(ahead_s)} from now: the clock was set back"
        )
        check.advise(CLOCK_ADVICE)
        check.advise("until then new threads may sort before older ones")
    return check


def _times(home: Path) -> Iterator[tuple[float, str]]:
    days = heapq.nlargest(NEWEST_DAYS, (home / "threads").glob("[0-9]*/[0-9]*/[0-9]*"))
    seen = 0
    for folder in (home, home / "index", *days):
        with suppress(OSError):
            for path in folder.iterdir():
                if (seen := seen + 1) > MAX_FILES:
                    return
                with suppress(OSError):
                    yield path.stat().st_mtime, str(path)


def _span(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


WRITTEN_BYTES = 256 * 1024
FEW_ENTRIES = 1000
"""Files that can still be made; some file systems have no such bound and say 0 of 0."""

DISK_ADVICE = {
    errno.ENOSPC: "make room on this disk: what cannot be stored is refused",
    errno.EDQUOT: "make room within the quota of this user: what cannot be stored is refused",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "the disk is mounted read-only: look at the log of the kernel, and mount it anew",
    errno.EACCES: "give this user the right to write there",
}


def check_disk(machine: Machine) -> Check:
    """Write and sync a little beside the threads, and where temporary files go."""
    check = Check("disk", message=str(machine.home))
    for folder in (_existing(machine.home), Path(tempfile.gettempdir())):
        _check_writes(folder, check)
    return check


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _check_writes(folder: Path, check: Check) -> None:
    try:
        facts = os.statvfs(folder)
        _write(folder)
    except OSError as exc:
        check.add("error", f"{folder}: {exc.strerror}")
        check.advise(
            DISK_ADVICE.get(exc.errno or 0, "look at the disk and at the log of the kernel")
        )
        return
    if facts.f_files > 0 and facts.f_favail < FEW_ENTRIES:
        check.add("error", f"{folder}: {facts.f_favail} more files can be made on its disk")
        check.advise("remove files that nobody needs: this disk has no room for more names")


def _write(folder: Path) -> None:
    number = (
        os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        if hasattr(os, "O_TMPFILE")
        else _removed_file(folder)
    )
    try:
        left = WRITTEN_BYTES
        while left:
            left -= os.write(number, bytes(left))
        os.fsync(number)
    finally:
        os.close(number)


def _removed_file(folder: Path) -> int:
    number, name = tempfile.mkstemp(dir=folder)
    Path(name).unlink()
    return number


FEW_FILES = 1024
"""Open files: one for each loaded thread and each connection, and some dozens."""
SMALL_FILE_BYTES = 1024 * 1024 * 1024
"""Logs and the index grow."""


def check_limits(machine: Machine) -> Check:
    """Check the limits that the server cannot raise by itself."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    shown = "unlimited" if files == resource.RLIM_INFINITY else str(files)
    check = Check("limits", message=f"open files: {shown}")
    if files != resource.RLIM_INFINITY and files < FEW_FILES:
        check.add("warning", f"a server may have {files} files open")
        check.advise("raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit)")
    if size != resource.RLIM_INFINITY and size < SMALL_FILE_BYTES:
        check.add("warning", f"a file may have {size} bytes")
        check.advise("raise the limit on the size of files (ulimit -f, LimitFSIZE=)")
    return check


KEYS = ("cli_auth_credentials_store", "mcp_oauth_credentials_store")
PROBE = ("app-server doctor", "nothing is kept here")
"""Service and name of a keyring entry that never exists."""


def check_keyring(machine: Machine) -> Check:
    """Look for an entry that is not there; an `auto` store does without a keyring."""
    check = Check("keyring")
    try:
        stores = _stores(machine.read_files().override(machine.overrides))
    except ConfigError as exc:
        check.add("error", f"unknown: {str(exc).strip()}")
        check.advise("correct that setting, then look again")
        return check
    needed = [key for key in KEYS if stores[key] == "keyring"]
    wanted = [key for key in KEYS if stores[key] in ("keyring", "auto")]
    if not wanted:
        check.message = "credentials are kept in files"
        return check
    problem = _problem()
    if problem is None:
        check.message = f"the keyring works, for {' and '.join(wanted)}"
    elif not needed:
        check.message = f"credentials are kept in files: {problem}"
    else:
        check.add("error", f'{problem}, and {" and ".join(needed)} = "keyring" needs one')
        check.advise(
            "install the extra (pip install 'app-server[keyring]') and run a keyring service, or "
            + ", ".join(f'set {key} = "file"' for key in needed)
        )
    return check


def _stores(config: Config) -> dict[str, str]:
    mcp = config.view().string(KEYS[1])
    return {KEYS[0]: read_account_settings(config).store, KEYS[1]: mcp or "auto"}


def _problem() -> str | None:
    try:
        with keyring_failures(quiet=False):
            ring = load_keyring()
            if ring is None:
                return "the Python package `keyring` is not installed"
            ring.get_password(*PROBE)
    except StoreFailed as exc:
        return str(exc)
    return None


def check_sandbox(machine: Machine) -> Check:
    """Try to get out of the sandbox of this machine."""
    check = Check("sandbox")
    try:
        found = probe(machine.sandbox)
    except (SandboxUnavailable, OSError) as exc:
        check.add("error", str(exc))
        check.advise("until then commands run only in threads with full access")
        return check
    check.message = f"{found.program}: {len(found.refused)} ways out were tried and refused"
    _judge_sandbox(found, "a confined command", check)
    _check_proxied(machine, check)
    if found.limit is None:
        check.add("warning", "the processes of a command have no bound")
        check.advise("run the server as a user, or where it may make cgroups")
    else:
        check.message += f"; processes are bound by {found.limit}"
    return check


def _check_proxied(machine: Machine, check: Check) -> None:
    """Try to get out of the sandbox of a command whose network is the proxy."""
    try:
        found = probe(machine.sandbox, proxied=True)
    except (SandboxUnavailable, OSError) as exc:
        # Elsewhere nobody has it, and the text says so.
        check.add("warning" if sys.platform == "linux" else "ok", f"with the proxy: {exc}")
        if sys.platform == "linux":
            check.advise("until then commands have no network where that is to be the proxy")
        return
    check.message += f"; with the proxy as the only network {len(found.refused)}"
    _judge_sandbox(found, "a command whose network is the proxy", check)


def _judge_sandbox(found: SandboxProbe, who: str, check: Check) -> None:
    for name in found.escaped:
        check.add("error", f"{who} can {name}")
        check.advise("do not rely on the sandbox of this machine, and report this")


CONNECT_S = 2.0


def check_ports(machine: Machine) -> Check:
    """Bind each address for a moment."""
    default = machine.home / "app-server.sock"
    check = Check("ports", message=", ".join(machine.listen) or "loopback, any free port")
    for text in machine.listen or ("ws://127.0.0.1:0",):
        try:
            address = parse_address(text, default)
        except ValueError as exc:
            check.add("error", str(exc))
            check.advise("choose another address for --listen")
            continue
        match address:
            case TcpAddress():
                _check_tcp(address, check)
            case UnixAddress(path):
                _check_socket(path, check)
    if not machine.listen:
        _report_default(default, check)
    return check


def _check_tcp(address: TcpAddress, check: Check) -> None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    shown = f"{address.host}:{address.port}"
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            # As servers do: connections that are closing do not count.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((address.host, address.port))
            trial.listen(1)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            check.add("error", f"{shown} is taken{_holder_of_port(address.port)}")
            check.advise("end that program, or choose another port (0: any free one)")
        elif exc.errno == errno.EACCES:
            check.add("error", f"{shown} is for root alone")
            check.advise("choose a port above 1023")
        else:
            check.add("error", f"{shown}: {exc.strerror}")
            check.advise("look at the loopback interface of this machine (ip address show lo)")


def _holder_of_port(port: int) -> str:
    with suppress(OSError):
        if (pid := listener_of(port)) is not None:
            return f" by {(PROC / str(pid) / 'comm').read_text().strip()} (process {pid})"
    return ""


def _check_socket(path: Path, check: Check) -> None:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        check.add("error", f"{path}: {TOO_LONG}")
        check.advise("choose another path")
        return
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            check.add("error", f"{path}: {LINK_TO_NOTHING}")
            check.advise("move it away, or choose another path")
        else:
            _check_socket_folder(path.parent, check)
        return
    except OSError as exc:
        check.add("error", f"{path}: {exc.strerror}")
        check.advise("let this user reach that path, or choose another one")
        return
    if not stat.S_ISSOCK(mode):
        check.add("error", f"{path} is there and is no socket")
        check.advise("move it away, or choose another path")
    elif _answers(path):
        check.add("error", f"{path} is taken: a server listens there")
        check.advise("use that server, or choose another path")


def _check_socket_folder(folder: Path, check: Check) -> None:
    """Look whether a server can make a file in a folder; it makes the folder, and none above."""
    made_in = folder if folder.exists() else folder.parent
    if made_in != folder and folder.is_symlink():
        check.add("error", f"{folder}: {LINK_TO_NOTHING}")
        check.advise("move it away, or choose another path")
    elif not made_in.exists():
        check.add("error", f"{made_in} {NO_FOLDER}")
        check.advise("make that folder, or choose another path")
    elif not os.access(made_in, os.W_OK | os.X_OK) or _is_of_the_kernel(made_in):
        check.add("error", f"no file can be made in {made_in}")
        check.advise("give this user the right to write there, or choose another path")


def _is_of_the_kernel(folder: Path) -> bool:
    """Whether a folder is of a file system of the kernel, as /proc."""
    try:
        # A name that the system takes back at once; /proc and /sys refuse any.
        with tempfile.TemporaryFile(dir=folder):
            return False
    except OSError:
        return True


def _report_default(path: Path, check: Check) -> None:
    if path.exists() and _answers(path):
        check.add("ok", f"a server listens on {path}")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(CONNECT_S)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True

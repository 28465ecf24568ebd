"""Whether a server can listen where it is to; without addresses, whether on any port."""

import errno
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from app_server.cli.checks.machine import Machine
from app_server.host.listening import PROC, listener_of
from app_server.threads.repair import Check
from app_server.transport.address import TcpAddress, UnixAddress, parse_address
from app_server.transport.socket_file import LINK_TO_NOTHING, MAX_PATH_BYTES, NO_FOLDER, TOO_LONG

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
            check.add("error", f"{shown} is taken{_holder(address.port)}")
            check.advise("end that program, or choose another port (0: any free one)")
        elif exc.errno == errno.EACCES:
            check.add("error", f"{shown} is for root alone")
            check.advise("choose a port above 1023")
        else:
            check.add("error", f"{shown}: {exc.strerror}")
            check.advise("look at the loopback interface of this machine (ip address show lo)")


def _holder(port: int) -> str:
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
            _check_folder(path.parent, check)
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


def _check_folder(folder: Path, check: Check) -> None:
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
    """Whether nothing can be made in a folder by anybody, whatever its rights, as in /proc."""
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

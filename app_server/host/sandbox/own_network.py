"""A program of its own: starts bubblewrap, and makes a listener in the network of its sandbox.

A socket stays in the network that it was made in, whoever has it: so a listener that is made in
the sandbox's network can be served from outside, and nothing of ours runs inside. bubblewrap says
which process is in the sandbox (`--info-fd`) and starts the command only after a word from here
(`--block-fd`); until then a child of this enters the network (setns(2)), makes the listener on
127.0.0.1 and sends it to the server. Where that cannot be done the command is not started.

Arguments: the descriptor of a socket that leads to the server, the port, `--`, and the command line
of bubblewrap. Runs as `python -I -S`, and imports little.
Source: docs/tools.md, "Network through a proxy"; bwrap(1), setns(2), ioctl_ns(2).
"""

import array
import ctypes
import fcntl
import json
import os
import signal
import socket
import sys

NS_GET_USERNS = 0xB701
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MAX_INFO_BYTES = 4_096
"""Of what bubblewrap says: a few numbers."""

BACKLOG = 128
"""Connections that wait until the server takes them."""

LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become bubblewrap; a child does the rest and ends."""
    server, port, line = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4:]
    told, tell = os.pipe()
    held, release = os.pipe()
    sandbox = os.getpid()
    # Twice, so that bubblewrap has no child that it does not know.
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(tell)
            os.close(held)
            let_in(sandbox, told, release, server, port)
        os._exit(0)
    os.wait()
    for fd in (server, told, release):
        os.close(fd)
    for fd in (tell, held):
        os.set_inheritable(fd, True)
    # Python has changed these for itself, and who is executed inherits them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    told_where = ["--info-fd", str(tell), "--block-fd", str(held)]
    os.execve(line[0], [line[0], *told_where, *line[1:]], first_environment())  # noqa: S606


def first_environment() -> dict[bytes, bytes]:
    """Return the variables that this program was given; Python may have added to them since."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib is a slow import
        entries = file.read().split(b"\0")
    parted = [entry.partition(b"=") for entry in entries]
    return {name: value for name, sign, value in parted if sign}


def let_in(sandbox: int, told: int, release: int, server: int, port: int) -> None:
    """Make the listener, and let the command start; without one the sandbox is ended."""
    try:
        pid = pid_in(told)
        if pid is None:
            return
        listener = make_listener(pid, port)
        rights = array.array("i", [listener.fileno()])
        with socket.socket(fileno=server) as connection:
            connection.sendmsg([b"l"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.write(release, b"x")
    except (OSError, ValueError) as exc:
        os.write(2, f"the network of the command cannot be made: {exc}\n".encode())
        os.kill(sandbox, signal.SIGKILL)


def pid_in(told: int) -> int | None:
    """Return the process in the sandbox, as bubblewrap names it; None if it has ended before.

    Raises:
        OSError, ValueError: it said nothing that makes sense.
    """
    info = b""
    while len(info) < MAX_INFO_BYTES and (piece := os.read(told, MAX_INFO_BYTES)):
        info += piece
        if b"}" in info:
            break
    return int(json.loads(info)["child-pid"]) if info else None


def make_listener(pid: int, port: int) -> socket.socket:
    """Enter the network of a process, and listen there.

    Raises:
        OSError: it may not be entered, or its loopback is not there.
    """
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if os.geteuid() != 0:
        # Only who has the rights of its user namespace may enter; root has all rights.
        enter(fcntl.ioctl(network, NS_GET_USERNS), CLONE_NEWUSER)
    enter(network, CLONE_NEWNET)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def enter(namespace: int, kind: int) -> None:
    """Enter a namespace.

    Raises:
        OSError: it may not be entered.
    """
    if LIBC.setns(namespace, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()

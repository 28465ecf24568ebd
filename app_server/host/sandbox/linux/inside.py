"""Program that starts bubblewrap, and sets up its network and limits from inside.

bubblewrap says which process is in the sandbox (`--info-fd`), and starts the command only after a
word from here (`--block-fd`). Until then a child of this enters namespaces of the sandbox
(setns(2)) and makes there, as wanted:

- a listener on 127.0.0.1, which it sends to the server. A socket stays in the network that it was
  made in, whoever has it: so it is served from outside, and nothing of ours runs inside.
- a bound of processes: `pid_max` of the PID namespace, which has one of its own since Linux 6.14.
  The command cannot change it, as its /proc can only be read.

Where that cannot be done the command is not started.
Arguments: the descriptor of a socket that leads to the server, the port, the bound, each `-` if it
is not wanted; then `--` and the command line of bubblewrap. Runs as `python -I -S` before each such
command, so it imports only what is compiled: `json`, `signal` and `socket` would double its time.
Source: docs/tools.md, "Sandbox", "Network through a proxy"; bwrap(1), setns(2), ioctl_ns(2),
ip(7).
"""

import _socket as socket
import array
import ctypes
import fcntl
import os
import sys

NS_GET_USERNS = 0xB701
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
IP_FREEBIND = 15

NOT_WANTED = "-"

MAX_INFO_BYTES = 4_096
"""Of what bubblewrap says: a few numbers, as JSON."""

CHILD_PID = b'"child-pid":'

SIGKILL, SIGPIPE, SIGXFSZ = 9, 13, 25
SIG_DFL = 0

BACKLOG = 128
"""Connections that wait until the server takes them."""

PID_MAX = "/proc/sys/kernel/pid_max"

LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become bubblewrap; a child does the rest and ends."""
    server, port, pids = sys.argv[1:4]
    line = sys.argv[5:]
    info_fd, info_writer = os.pipe()
    held, release = os.pipe()
    sandbox = os.getpid()
    # Twice, so that bubblewrap has no child that it does not know.
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(info_writer)
            os.close(held)
            prepare(sandbox, info_fd, release, server, port, pids)
        os._exit(0)
    os.wait()
    for fd in (info_fd, release):
        os.close(fd)
    if server != NOT_WANTED:
        os.close(int(server))
    for fd in (info_writer, held):
        os.set_inheritable(fd, True)
    # Python has changed these for itself, and who is executed inherits them.
    for number in (SIGPIPE, SIGXFSZ):
        LIBC.signal(number, SIG_DFL)
    pipes = ["--info-fd", str(info_writer), "--block-fd", str(held)]
    try:
        os.execve(line[0], [line[0], *pipes, *line[1:]], first_environment())  # noqa: S606
    except OSError as exc:
        sys.exit(str(exc))


def first_environment() -> dict[bytes, bytes]:
    """Return the variables that this program was given; Python may have added to them since."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib is a slow import
        entries = file.read().split(b"\0")
    parted = [entry.partition(b"=") for entry in entries]
    return {name: value for name, sign, value in parted if sign}


def prepare(sandbox: int, info_fd: int, release: int, server: str, port: str, pids: str) -> None:
    """Set up the sandbox and let the command start; on failure the sandbox is ended."""
    is_settled = False
    try:
        pid = pid_in(info_fd)
        if pid is not None:
            network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            processes = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
            # Only who has the rights of its user namespace may enter the others.
            enter(fcntl.ioctl(processes, NS_GET_USERNS), CLONE_NEWUSER)
            if server != NOT_WANTED:
                enter(network, CLONE_NEWNET)
                send_listener(int(server), int(port))
            if pids != NOT_WANTED:
                enter(processes, CLONE_NEWPID)
                bound_processes(pids)
            os.write(release, b"x")
        is_settled = True
    except (OSError, ValueError) as exc:
        os.write(2, f"the sandbox of the command cannot be made: {exc}\n".encode())
    finally:
        # Whatever went wrong: bubblewrap takes the end of this process for the word to start.
        if not is_settled:
            os.kill(sandbox, SIGKILL)


def pid_in(info_fd: int) -> int | None:
    """Return the process in the sandbox, as bubblewrap names it; None if it has ended before.

    Raises:
        OSError, ValueError: it said nothing that makes sense.
    """
    info = b""
    while len(info) < MAX_INFO_BYTES and (piece := os.read(info_fd, MAX_INFO_BYTES)):
        info += piece
        if b"}" in info:
            break
    if not info:
        return None
    return int(info.partition(CHILD_PID)[2].strip().partition(b",")[0].rstrip(b"}\n "))


def enter(namespace: int, kind: int) -> None:
    """Enter a namespace; children alone enter one of processes.

    Raises:
        OSError: it may not be entered.
    """
    if LIBC.setns(namespace, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def send_listener(server: int, port: int) -> None:
    """Listen in the network that this process is in now.

    Raises:
        OSError: the port is taken, or the server is gone.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # bubblewrap may be about to give the loopback interface its address.
    listener.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    rights = array.array("i", [listener.fileno()])
    connection = socket.socket(fileno=server)
    connection.sendmsg([b"l"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    connection.close()
    listener.close()


def bound_processes(pids: str, file: str = PID_MAX) -> None:
    """Bound the processes of the namespace that children of this process are in, by its `file`.

    Raises:
        OSError: it has no bound of its own.
    """
    outside = read_pid_max(file)
    child = os.fork()
    if child == 0:
        try:
            write_pid_max(pids, file)
        finally:
            # Whether it could be written is asked below.
            os._exit(0 if read_pid_max(file) == pids else 1)
    _, status = os.waitpid(child, 0)
    if read_pid_max(file) != outside:
        # A kernel that knows one bound for the whole machine alone.
        write_pid_max(outside, file)
        status = 1
    if status != 0:
        raise OSError(0, "its processes cannot be bounded")


def read_pid_max(file: str) -> str:
    """Return the bound of the PID namespace that this process is in."""
    with open(file) as bound:  # noqa: PTH123
        return bound.read().strip()


def write_pid_max(pids: str, file: str) -> None:
    """Set it.

    Raises:
        OSError: it may not be set, or not to this.
    """
    with open(file, "w") as bound:  # noqa: PTH123
        bound.write(pids)


if __name__ == "__main__":
    main()

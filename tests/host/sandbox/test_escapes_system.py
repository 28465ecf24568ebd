"""Ways out of a sandbox through the kernel, other processes and the network, tried for real."""

import asyncio
import os
import platform
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from app_server.host.sandbox.linux.seccomp import ARCHITECTURES, REFUSED
from protocol.turns.policy import WorkspaceWriteSandboxPolicy
from tests.support.harness import claim
from tests.support.host.sandboxes import PYTHON, Victim, make_victim, run_confined

CALLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return result, ctypes.get_errno()
"""


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    """Make a machine to get out of."""
    return make_victim(tmp_path / "machine")


async def printed(victim: Victim, code: str, *arguments: object, network: bool = False) -> str:
    policy = WorkspaceWriteSandboxPolicy(
        exclude_slash_tmp=True, exclude_tmpdir_env_var=True, network_access=network
    )
    command = (*PYTHON, code, *map(str, arguments))
    ended = await run_confined(command, victim.work, victim.sandbox_policy(policy))
    assert ended.code == 0, ended.err
    return ended.out


@pytest.mark.process
@pytest.mark.parametrize("network", [False, True])
@claim("sandbox:calls")
async def test_the_kernel_refuses_every_call_of_the_list(victim: Victim, network: bool) -> None:
    numbers = ARCHITECTURES[platform.machine()].numbers
    wanted = {name: numbers[name] for name in REFUSED} | {"clone3": numbers["clone3"]}
    code = CALLS + f"print({{name: call(number, 0, 0, 0) for name, number in {wanted}.items()}})"
    refused = dict.fromkeys(REFUSED, (-1, 1)) | {"clone3": (-1, 38)}
    assert await printed(victim, code, network=network) == f"{refused}\n"


@pytest.mark.process
@claim("sandbox:calls")
async def test_no_namespace_and_no_mount(victim: Victim) -> None:
    clone = ARCHITECTURES[platform.machine()].numbers["clone"]
    code = (
        CALLS
        + f"""
flags = [0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000]
print([libc.unshare(flag) for flag in flags])
print([call({clone}, flag | 17, 0, 0, 0, 0) for flag in flags])
print([libc.mount(b"/", b"/mnt", None, 4096, None), libc.mount(b"", b"/", None, 4096 | 32, None)])
print([libc.setns(os.open("/proc/self/ns/" + name, 0), 0) for name in ("user", "mnt", "net")])
"""
    )
    assert (await printed(victim, code)).splitlines() == [
        str([-1] * 7),
        str([(-1, 1)] * 7),
        "[-1, -1]",
        "[-1, -1, -1]",
    ]


@pytest.mark.process
@claim("sandbox:calls")
async def test_calls_of_another_architecture_end_the_process(victim: Victim) -> None:
    assert platform.machine() == "x86_64", "this machine has no other interface to try"
    # mov eax, 20 (getpid); int 0x80; ret
    code = """
import ctypes, mmap
room = mmap.mmap(-1, 4096, prot=7)
room.write(bytes.fromhex("b814000000cd80c3"))
at = ctypes.addressof(ctypes.c_char.from_buffer(room))
print("ESCAPED", ctypes.CFUNCTYPE(ctypes.c_int)(at)())
"""
    ended = await run_confined((*PYTHON, code), victim.work, victim.sandbox_policy())
    assert (ended.code, ended.out) == (128 + signal.SIGSYS, "")


@pytest.mark.process
@claim("sandbox:processes")
async def test_other_processes_are_neither_seen_nor_reached(victim: Victim) -> None:
    code = """
import os, sys
server = int(sys.argv[1])
for number in (0, 15, 9):
    try: os.kill(server, number); print("ESCAPED")
    except ProcessLookupError: pass
print(sorted({1, os.getpid()} ^ {int(name) for name in os.listdir("/proc") if name.isdecimal()}))
status = open("/proc/self/status").read().split("\\n")
print([line for line in status if line.startswith(("CapEff", "CapBnd", "NoNewPrivs", "Seccomp:"))])
"""
    assert (await printed(victim, code, os.getpid())).splitlines() == [
        "[]",
        str(
            [
                "CapEff:\\t0000000000000000",
                "CapBnd:\\t0000000000000000",
                "NoNewPrivs:\\t1",
                "Seccomp:\\t2",
            ]
        ).replace("\\\\", "\\"),
    ]


@pytest.mark.process
@claim("sandbox:calls")
async def test_settings_and_devices_of_the_machine_are_out_of_reach(victim: Victim) -> None:
    code = """
import os, stat
def tried(what):
    try: what()
    except OSError: return "refused"
    return "ESCAPED"
def write(path):
    # What it says already, should it ever work.
    with open(path) as file: said = file.read() if path.endswith("n") else "h"
    with open(path, "w") as file: file.write(said)
print(tried(lambda: write("/proc/sys/kernel/core_pattern")))
print(tried(lambda: write("/proc/sysrq-trigger")))
print(tried(lambda: write("/sys/kernel/mm/ksm/run")))
print(tried(lambda: os.mknod("disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0))))
print(tried(lambda: os.mknod("/dev/disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0))))
print(sorted(name for name in os.listdir("/dev") if stat.S_ISBLK(os.lstat("/dev/" + name).st_mode)))
print(tried(lambda: os.setuid(12345)), tried(lambda: os.chown("inside.txt", 12345, -1)))
"""
    assert (await printed(victim, code)).splitlines() == [*["refused"] * 5, "[]", "refused refused"]


# The network.


@dataclass
class Listeners:
    """Sockets of the machine that something confined would like to reach."""

    abstract: str
    path: str
    ports: list[int] = field(default_factory=list)
    """IPv4, IPv6, and a UDP port."""
    reached: int = 0


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[Listeners]:
    found = Listeners(f"\0app-server-test-{os.getpid()}", str(folder / "s"))
    loop = asyncio.get_running_loop()

    def accept(listener: socket.socket) -> None:
        found.reached += 1
        if listener.type == socket.SOCK_DGRAM:
            listener.recvfrom(100)
        else:
            listener.accept()[0].close()

    with ExitStack() as stack:
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, found.abstract),
            (socket.AF_UNIX, socket.SOCK_STREAM, found.path),
            (socket.AF_UNIX, socket.SOCK_DGRAM, found.path + "d"),
        ):
            listener = stack.enter_context(socket.socket(family, kind))
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            if family != socket.AF_UNIX:
                found.ports.append(listener.getsockname()[1])
            loop.add_reader(listener, accept, listener)
            stack.callback(loop.remove_reader, listener)
        yield found


REACH = """
import os, socket, sys
four, six, datagrams, abstract, path = sys.argv[1:6]
def tried(family, kind, address):
    try:
        with socket.socket(family, kind) as made:
            if kind == socket.SOCK_DGRAM: made.sendto(b"x", address)
            else: made.connect(address)
    except OSError as exc: return exc.errno
    return "REACHED"
print([
    tried(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(four))),
    tried(socket.AF_INET6, socket.SOCK_STREAM, ("::1", int(six))),
    tried(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(datagrams))),
    tried(socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + abstract),
    tried(socket.AF_UNIX, socket.SOCK_STREAM, path),
    tried(socket.AF_UNIX, socket.SOCK_DGRAM, path + "d"),
])
"""


@pytest.mark.process
@claim("sandbox:network")
async def test_no_socket_reaches_anything_without_network(victim: Victim) -> None:
    async with listening(victim.root) as there:
        arguments = (*there.ports, there.abstract[1:], there.path)
        refused = await printed(victim, REACH, *arguments)
        assert (refused, there.reached) == (f"{[1] * 6}\n", 0)
        # With network all of them are reached: this is what the filter and the namespace keep away.
        reached = await printed(victim, REACH, *arguments, network=True)
        assert (reached, there.reached) == (f"{['REACHED'] * 6}\n", 6)


@pytest.mark.process
@claim("sandbox:network")
async def test_neither_names_nor_proxies_lead_out(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(victim.root) as there:
        for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{there.ports[0]}")
        code = """
import socket, urllib.request
try: print(socket.getaddrinfo("example.com", 80))
except OSError as exc: print(type(exc).__name__)
try: print(urllib.request.urlopen("http://example.com", timeout=5))
except OSError as exc: print(type(exc).__name__)
print(socket.socketpair()[0].family.name)
"""
        told = "import os; print(os.environ.get('CODEX_SANDBOX_NETWORK_DISABLED'))"
        said = await printed(victim, code + told)
        assert (said, there.reached) == ("gaierror\nURLError\nAF_UNIX\n1\n", 0)
        assert await printed(victim, told, network=True) == "None\n"


@pytest.mark.process
@claim("sandbox:secrets")
async def test_sockets_of_keyrings_and_services_are_hidden_with_network_too(victim: Victim) -> None:
    keyring = victim.root / "keyring"
    keyring.mkdir()
    async with listening(keyring) as there:
        code = """
import os, socket, sys
made = socket.socket(socket.AF_UNIX)
try: made.connect(sys.argv[1])
except OSError as exc: print(exc.errno, os.listdir(os.path.dirname(sys.argv[1])))
"""
        assert (await printed(victim, code, there.path, network=True), there.reached) == (
            "2 []\n",
            0,
        )
        # As a single file: in its place there is something else, that nobody can open.
        only = replace(victim.sandbox_policy(), denied=(there.path,), network=True)
        ended = await run_confined((*PYTHON, code, there.path), victim.work, only)
        assert (ended.code, ended.out[:3], there.reached) == (0, "111", 0)


@pytest.fixture
def shared() -> Iterator[int]:
    """Make shared memory of System V, and a file in /dev/shm."""
    import ctypes

    libc = ctypes.CDLL(None)
    key = 0x5EED0000 | (os.getpid() & 0xFFFF)
    made = libc.shmget(key, 4096, 0o1666)
    assert made >= 0
    path = Path(f"/dev/shm/{key}")
    path.write_text("ours")
    yield key
    libc.shmctl(made, 0, None)
    with suppress(FileNotFoundError):
        path.unlink()


@pytest.mark.process
@claim("sandbox:processes")
async def test_memory_is_not_shared(victim: Victim, shared: int) -> None:
    code = """
import ctypes, os, sys
print(ctypes.CDLL(None).shmget(int(sys.argv[1]), 0, 0), os.listdir("/dev/shm"))
with open("/dev/shm/x", "w") as file: print(file.write("works"))
"""
    assert await printed(victim, code, shared) == "-1 []\n5\n"
    assert sys.platform == "linux"

"""The program that starts bubblewrap, with another one in the place of bubblewrap."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.host.sandbox.linux.sandbox import NOT_WANTED, PROGRAM
from tests.support.harness import WAIT_S
from tests.support.host.sandboxes import working_launcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")

STAND_IN = """#!/bin/sh
echo '{}}' >/proc/self/fd/$2
cat /proc/self/fd/$4
echo started
"""
"""Says nothing that makes sense, and waits for the word to start, or for the end of its giver."""


def test_what_cannot_be_prepared_is_not_started_though_nobody_reads_why(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(STAND_IN)
    program.chmod(0o700)
    argv = (sys.executable, "-I", "-S", str(PROGRAM))
    heard, said = os.pipe()
    os.close(heard)
    try:
        done = subprocess.run(
            [*argv, NOT_WANTED, NOT_WANTED, "4000", "--", str(program)],
            stdout=subprocess.PIPE,
            stderr=said,
            timeout=WAIT_S,
            check=False,
        )
    finally:
        os.close(said)
    assert (done.returncode, done.stdout) == (-9, b"")


EARLY = """
import fcntl, socket, struct, sys
from app_server.host.sandbox.linux import inside
if inside.LIBC.unshare(inside.CLONE_NEWUSER | inside.CLONE_NEWNET) != 0: sys.exit("no namespaces")
address = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton("10.0.0.1"))
SIOCSIFADDR = 0x8916
fcntl.ioctl(socket.socket(), SIOCSIFADDR, address)
inside.send_listener(int(sys.argv[1]), 4000)
"""
"""With another address, the network knows which addresses are its own: 127.0.0.1 is none yet."""


def test_the_listener_is_made_also_before_its_network_has_the_address() -> None:
    working_launcher()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = (sys.executable, "-c", EARLY, str(theirs.fileno()))
        subprocess.run(argv, pass_fds=[theirs.fileno()], timeout=WAIT_S, check=True)
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    with socket.socket(fileno=fds[0]) as listener:
        assert listener.getsockname() == ("127.0.0.1", 4000)

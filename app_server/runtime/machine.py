"""Identity of the machine that this process runs on.

Source: https://www.freedesktop.org/software/systemd/man/latest/machine-id.html (the id itself is
confidential: what is kept is a digest of it).
"""

import hashlib
import socket
from functools import cache
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")


@cache
def machine_name() -> str:
    """Return 32 hexadecimal digits that another machine, or container, does not have. Blocks."""
    try:
        known = MACHINE_ID.read_text().strip()
    except OSError:
        known = ""
    # Containers of one image may share the id, and have host names of their own.
    return hashlib.sha256(f"app-server {known} {socket.gethostname()}".encode()).hexdigest()[:32]

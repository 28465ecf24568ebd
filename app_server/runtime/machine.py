"""Identity of the machine that this process runs on.

Source: https://www.freedesktop.org/software/systemd/man/latest/machine-id.html (the id itself is
confidential: what is kept is a digest of it).
"""

import hashlib
from functools import cache
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")

MAX_ID_BYTES = 64
"""Of the file; an id has 32 hexadecimal digits."""


@cache
def machine_name(file: Path = MACHINE_ID) -> str | None:
    """Return 32 hexadecimal digits that stand for this machine; None where it has no id. Blocks.

    `file` has the id.
    Containers mostly have none. Host names are no identity: each start of a container has another.
    """
    try:
        with file.open("rb") as content:
            known = content.read(MAX_ID_BYTES).strip()
    except OSError:
        return None
    return hashlib.sha256(b"app-server " + known).hexdigest()[:32] if known else None

"""What is executed in the place of a program: has it forked, and is as long there as it.

`python -S -E stand_in.py SOCKET MODULE [WORD…]`. The fork has the streams, the variables and the
folder of this process. This process ends with the fork's status; when it is killed, so is the fork.
"""

import json
import os
import socket
import sys

STREAMS = (0, 1, 2)


def main() -> int:
    """Ask for the fork, and wait for its end."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(sys.argv[1])
        socket.send_fds(asked, [b"\0"], STREAMS)
        wanted = {"words": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
        asked.sendall(json.dumps(wanted).encode() + b"\n")
        for stream in STREAMS:
            # Whoever reads what the fork writes is to see that it has closed it.
            os.close(stream)
        status = asked.recv(1)
    return status[0] if status else 1


if __name__ == "__main__":
    sys.exit(main())

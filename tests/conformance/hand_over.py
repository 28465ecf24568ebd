"""What warm.py has started: hand over the process to the one that listens at the first argument.

It is started with `-I -S`, and imports little: it takes the place of a start with many imports.
"""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [b"\n"], [0, 1, 2])
    arguments = [os.fsencode(argument) for argument in sys.argv[2:]]
    environment = [name + b"=" + value for name, value in os.environb.items()]
    connection.sendall(b"\0".join([b"%d" % len(arguments), *arguments, *environment]))
    connection.shutdown(socket.SHUT_WR)
    status = connection.recv(1)
sys.exit(status[0] if status else 1)

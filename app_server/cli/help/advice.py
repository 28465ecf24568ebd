"""Advice about wrong command lines and failed starts.

Imported when something went wrong.
"""

import difflib
import errno
from collections.abc import Iterable, Sequence

from app_server.transport.socket_file import NO_FOLDER


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question for the known word that is most like a wrong one; empty if none is."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def why_not_started(problem: Exception, listen: Sequence[str]) -> str:
    """Return the text of a failure, with its remedy where one is known."""
    text = str(problem).strip()
    if not isinstance(problem, OSError):
        return text
    if problem.strerror == NO_FOLDER:
        return f"{problem.filename} {NO_FOLDER}\nMake that folder, or choose another path."
    if problem.errno != errno.EADDRINUSE or not listen:
        return text
    addresses = " ".join(f"--listen {url}" for url in listen)
    return (
        f"{text}\n"
        f"app-server doctor --only ports {addresses}\n"
        "says which program has it. --listen ws://127.0.0.1:0 takes any free port, and\n"
        "app-server status lists the servers that run with a home folder."
    )

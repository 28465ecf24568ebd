"""An agent for tests of the launcher: writes down what it was given, then does as it is told.

FAKE_CODEX is `OUT DO [ARGUMENT]`: the file to write, and `exit N`, `wait`, `count`, which writes
down each SIGINT and ends with their number, or `thread FOLDER`, which starts a thread at the server
and waits.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType


def main() -> int:
    """Run the agent."""
    out, do, *arguments = os.environ["FAKE_CODEX"].split(" ")
    variables = {name: value for name, value in os.environ.items() if name.startswith("PRISM_")}
    given: dict[str, object] = {"words": sys.argv[1:], "variables": variables, "pid": os.getpid()}
    url = variables.get("PRISM_CODEX_APP_SERVER_URL")
    if url is not None:
        # Late: most tests give the agent no server, and wait for no imports.
        from tests.support.clients.fake_codex_client import home_of, work

        given["home"] = home_of(url, os.environ.get("APP_SERVER_TOKEN"))
    if do == "exit":
        _write(Path(out), given)
        return int(arguments[0])
    if do == "thread":
        assert url is not None
        work(url, arguments[0], lambda thread: _write(Path(out), given | {"thread": thread}))
        return 0
    if do == "count":
        return _count(Path(out), given)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    _write(Path(out), given)
    signal.pause()
    return 0


def _count(out: Path, given: dict[str, object]) -> int:
    numbers = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    count = 0
    while True:
        _write(out, given | {"count": count})
        if signal.sigwait(numbers) == signal.SIGTERM:
            return count
        count += 1


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(50 + number)


def _write(out: Path, given: dict[str, object]) -> None:
    draft = out.with_suffix(".draft")
    draft.write_text(json.dumps(given))
    draft.replace(out)


if __name__ == "__main__":
    sys.exit(main())

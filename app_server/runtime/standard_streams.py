"""Stdout and stderr of a program: closed, on a full disk, or a pipe without a reader.

Source: stdio(3); the documentation of Python, signal, "Note on SIGPIPE".
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast

STDOUT, STDERR = 1, 2

NO_WORKING_DIRECTORY = "the working directory is not there any more: change to another one"

CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in b"\t\n"
}
"""Characters that terminals obey, as they are shown."""
ONE_LINE = CONTROLS | {ord("\n"): "\\n"}


def one_line(text: str) -> str:
    """Escape control characters and line breaks of a configured text."""
    return text.translate(ONE_LINE)


class _Watched:
    """Stream that records its failed writes; a closed one records none.

    Programs print what users, servers and files say of themselves: what terminals would obey is
    shown instead.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.problem: OSError | None = None

    def write(self, text: str) -> int:
        self.write_as_it_is(text.translate(CONTROLS))
        return len(text)

    def write_as_it_is(self, text: str) -> None:
        try:
            if self.stream is not None:
                self.stream.write(text)
        except OSError as exc:
            self.problem = exc
            raise

    def flush(self) -> None:
        try:
            if self.stream is not None and not self.stream.closed:
                self.stream.flush()
        except OSError as exc:
            self.problem = exc
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def end(self, number: int) -> None:
        """Flush; `number` is the stream's descriptor."""
        with suppress(OSError):
            self.flush()
        if self.problem is not None:
            # The interpreter would try again at its end, and complain.
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, number)
            os.close(nothing)


class ProgramEnd:
    """The end of a program; no dataclass, whose module takes half of an import of this one."""

    def __init__(self) -> None:
        self.status = 0
        """Its exit status; `standard_streams` makes 1 of it if stdout did not take all of it."""


@contextmanager
def standard_streams(name: str) -> Iterator[ProgramEnd]:
    """Watch stdout and stderr while a program runs, which sets the exit status that is given.

    Its user reads on stderr why stdout did not take all of it, unless the reader of a pipe has just
    gone, as `head` does, and that the working directory is not there any more.
    """
    _open_closed()
    end = ProgramEnd()
    before = sys.stdout, sys.stderr
    out, err = _Watched(sys.stdout), _Watched(sys.stderr)
    if sys.stdout is not None:
        sys.stdout = cast("TextIO", out)
    sys.stderr = cast("TextIO", err)
    try:
        yield end
    except SystemExit:
        if _end(name, out, err):
            raise
        end.status = 1
        return
    except OSError as exc:
        if out.problem is None and err.problem is None:
            if not lacks_working_directory(exc):
                raise
            print_to_stderr(f"{name}: {NO_WORKING_DIRECTORY}")
        end.status = 1
    finally:
        sys.stdout, sys.stderr = before
    if not _end(name, out, err):
        end.status = 1


def print_now(text: str) -> bool:
    """Print a line to stdout at once; False where that failed, which is said at the end."""
    try:
        print(text, flush=True)
    except OSError:
        return False
    return True


def print_to_stderr(text: str) -> None:
    """Print a line to stderr at once; a failed write is ignored."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _open_closed() -> None:
    # A file that is opened would otherwise get the number of a closed one, and what is printed.
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(number, True)
    os.close(number)


def lacks_working_directory(error: OSError) -> bool:
    """Whether an error is due to a removed working directory.

    A program that catches OSError lets such a one pass: `standard_streams` says so.
    """
    if isinstance(error.__cause__, OSError):
        error = error.__cause__
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        if not isinstance(error, FileNotFoundError):
            return False
        return error.filename is None or not Path(error.filename).is_absolute()
    return False


def _end(name: str, out: _Watched, err: _Watched) -> bool:
    """Whether stdout has taken all that was printed."""
    out.end(STDOUT)
    if out.problem is not None and not isinstance(out.problem, BrokenPipeError):
        with suppress(OSError):
            err.write(f"{name}: stdout cannot be written: {out.problem.strerror}\n")
    err.end(STDERR)
    return out.problem is None

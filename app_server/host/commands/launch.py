"""The parameters of a command's start: a value from the packages above."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """In characters; 1 to 65,535 each."""

    rows: int = 24
    cols: int = 80


@dataclass(frozen=True, slots=True)
class CommandLaunch:
    """One command that is to be started on this machine."""

    argv: Sequence[str]
    """Program and arguments; a program without a slash is looked up in `PATH` of `env`."""
    env: Mapping[str, str] = field(repr=False)
    """The whole environment."""
    cwd: str
    """An absolute path."""
    terminal: TerminalSize | None = None
    """Run at a terminal of this size; its output is all stdout."""
    takes_terminal: bool = False
    """It makes its stdin its controlling terminal by itself."""
    has_stdin: bool = False
    """Whether anything can be written to it; without, and without a terminal, it reads nothing."""
    merges_stderr: bool = True
    """Whether stderr comes with stdout, in the order in which both were written."""
    is_held: bool = False
    """Nothing of its output is read before `RunningCommand.go_on`: what it prints has to wait."""
    inherited_fds: Sequence[int] = ()
    """Descriptors of this process that it gets under the same numbers, above 2; it is the caller
    who closes them, once it was started. At most 248."""
    placeholders: Sequence[tuple[int, str]] = ()
    """Of these the ones of empty folders that are removed when it has ended, and what each is
    called."""
    is_wrapped: bool = False
    """The process is a sandbox that dies at once of SIGTERM and takes the command with it: only
    what is in it gets the SIGTERM."""

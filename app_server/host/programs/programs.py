"""The programs of one kind, by owner and by what the owner calls them.

Source: docs/tools.md, "Host methods".
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from app_server.host.programs.program import Program, ProgramRefused

MAX_PROGRAMS = 64
"""Of one owner and kind that run at once."""

Owner: TypeAlias = Hashable


class Programs:
    """The programs that run now, by owner and id."""

    def __init__(self, kind: str, name_of_id: str) -> None:
        """Say what they and their ids are called in errors, such as `process`, `process handle`."""
        self._kind = kind
        self._name_of_id = name_of_id
        self._running: dict[Owner, dict[str | object, Program]] = {}

    @contextmanager
    def entered(self, owner: Owner, program_id: str | None, program: Program) -> Iterator[None]:
        """Register a program while the context lasts; without an id it cannot be looked up.

        Raises:
            ProgramRefused: the owner has one of this id, or MAX_PROGRAMS.
        """
        of_owner = self._running.setdefault(owner, {})
        key = object() if program_id is None else program_id
        if key in of_owner:
            duplicate = f"{self._kind} {self._name_of_id.removeprefix(self._kind).strip()}"
            raise ProgramRefused(f'duplicate active {duplicate}: "{program_id}"')
        if len(of_owner) >= MAX_PROGRAMS:
            raise ProgramRefused(f"a connection runs at most {MAX_PROGRAMS} {self._kind} at once")
        of_owner[key] = program
        try:
            yield
        finally:
            del of_owner[key]
            if not of_owner:
                self._running.pop(owner, None)

    def find(self, owner: Owner, program_id: str) -> Program:
        """Return a program.

        Raises:
            ProgramRefused: none of this id runs.
        """
        program = self._running.get(owner, {}).get(program_id)
        if program is None:
            raise ProgramRefused(f'no active {self._kind} for {self._name_of_id} "{program_id}"')
        return program

    def terminate_all(self, owner: Owner) -> None:
        """Have all programs of an owner ended; never waits."""
        for program in self._running.get(owner, {}).values():
            program.terminate()

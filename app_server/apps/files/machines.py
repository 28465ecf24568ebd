"""What is needed of the machines that files are read on; app_server/host/environments.py has it.

Source: docs/apps.md, "Files".
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio

from protocol.exec_files import FileProfile
from protocol.exec_server import WorkPolicy


class OpenFile(Protocol):
    """A file of another machine that is being read."""

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Its bytes."""

    @property
    def size(self) -> int | None:
        """Of the file as it was opened, in bytes."""

    @property
    def returncode(self) -> int | None:
        """0 once all of it was read."""

    @property
    def ended(self) -> anyio.Event:
        """Set when nothing more comes."""


class Machine(Protocol):
    """One instance of an environment that is another machine."""

    def open_file(
        self, path: str, policy: WorkPolicy, profile: FileProfile | None = None
    ) -> AbstractAsyncContextManager[OpenFile]:
        """Read a file while the context lasts; entering raises OSError where it cannot be."""


class Machines(Protocol):
    """All environments."""

    def instance_of(self, environment_id: str) -> str | None:
        """Return which instance an environment is now; None for an unknown one."""

    def instance(self, environment_id: str, instance_id: str) -> Machine | None:
        """Return another machine; None if it is another instance now."""

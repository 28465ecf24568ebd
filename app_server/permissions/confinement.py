"""What a process may reach, or a tool that touches files for the model: one value for all."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Confinement:
    """Absolute paths, without symbolic links; a folder stands for all that is in it."""

    readable: tuple[str, ...] | None = None
    """None: everything that the user may read."""
    writable: tuple[str, ...] | None = None
    """None: everything that the user may write."""
    protected: tuple[str, ...] = ()
    """Inside of writable folders, and yet only readable."""
    denied: tuple[str, ...] = ()
    """Neither readable nor writable."""
    network: bool = True

    @property
    def is_confined(self) -> bool:
        """Whether there is anything that it keeps from a process."""
        return self != UNCONFINED


UNCONFINED = Confinement()
"""Whatever the user of the server may do."""

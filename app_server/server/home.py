"""The home folder, as far as it has to be usable before anybody can connect."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INDEX = "index"


class HomeUnusable(OSError):
    """The home folder cannot be read or written; the text says why and what to do."""

    def __str__(self) -> str:
        """Say it without a number."""
        return str(self.strerror)


def prepare_home(home: Path) -> None:
    """Make the folders that every server writes to; for worker threads.

    Raises:
        HomeUnusable: they cannot be made.
    """
    with home_errors(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / INDEX).mkdir(mode=0o700, exist_ok=True)


@contextmanager
def home_errors(home: Path) -> Iterator[None]:
    """Say of what the system refuses that it is about the home.

    Raises:
        HomeUnusable: the system refused something.
    """
    try:
        yield
    except OSError as exc:
        raise HomeUnusable(
            exc.errno,
            f"the home folder cannot be used: {exc.strerror} ({exc.filename}); "
            f"app-server doctor --home {home} says more",
        ) from exc

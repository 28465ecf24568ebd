"""Tests have a home folder of their own, which is empty.

Commands run in login shells. These read what the user who runs the tests has in his profile, which
can take a hundred times as long as the command, and prints, waits or keeps locks as it likes.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from app_server.config.home import HOME_VARIABLE


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, for all processes of a run."""
    if not hasattr(config, "workerinput"):
        home = tempfile.mkdtemp(prefix="home-of-tests-")
        os.environ["HOME"] = home
        config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))


@pytest.fixture(autouse=True)
def kept_home_variable() -> Iterator[None]:
    """Undo what `app-server --home` sets for the programs that it starts, where it runs here."""
    before = os.environ.get(HOME_VARIABLE)
    yield
    if before is None:
        os.environ.pop(HOME_VARIABLE, None)
    else:
        os.environ[HOME_VARIABLE] = before

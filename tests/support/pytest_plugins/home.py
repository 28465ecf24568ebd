"""Tests have a home folder of their own, which is empty.

Commands run in login shells. These read what the user who runs the tests has in his profile, which
can take a hundred times as long as the command, and prints, waits or keeps locks as it likes.
"""

import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, for all processes of a run."""
    if not hasattr(config, "workerinput"):
        home = tempfile.mkdtemp(prefix="home-of-tests-")
        os.environ["HOME"] = home
        config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))

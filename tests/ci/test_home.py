"""The home folder of the tests (pytest_plugins/home.py)."""

import subprocess
from pathlib import Path


def test_it_is_empty_so_that_login_shells_run_nothing_of_the_user() -> None:
    found = subprocess.run(
        ["/bin/bash", "-lc", "cd; pwd -P; ls -A"], capture_output=True, text=True, check=True
    )

    assert found.stdout.splitlines()[-1] == str(Path.home().resolve())
    assert Path.home().name.startswith("home-of-tests-")

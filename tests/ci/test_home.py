"""The home folder of the tests (pytest_plugins/home.py)."""

import subprocess
from pathlib import Path


def test_login_shells_of_commands_find_no_profile_there() -> None:
    found = subprocess.run(
        ["/bin/bash", "-lc", "cd; pwd -P"], capture_output=True, text=True, check=True
    )
    home = Path.home()

    assert found.stdout.splitlines()[-1] == str(home.resolve())
    assert home.name.startswith("home-of-tests-")
    profiles = (".profile", ".bash_profile", ".bash_login", ".bashrc", ".zshenv", ".zprofile")
    assert [name for name in profiles if (home / name).exists()] == []

"""A server that is killed loses nothing that it acknowledged; at length: `tests/long/crash.py`."""

from pathlib import Path

import pytest

from tests.long.crash import rounds
from tests.support.harness import claim


@claim("process:kill-anywhere")
@pytest.mark.process
@pytest.mark.slow
async def test_a_server_that_is_killed_anywhere_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    assert await rounds(tmp_path, 5, seed=11) == []

"""permissions: the files behind a thread, while somebody writes them."""

import os
import time
from pathlib import Path

from app_server.config.effective import ConfigSources, Configuration
from app_server.config.values import Config
from app_server.turns.servers import LiveSettings


class WrittenMeanwhile(Configuration):
    """Files of which a version is replaced while it is read, some time before the read ends."""

    def __init__(self, home: Path, text: str) -> None:
        super().__init__(ConfigSources(home, home, home / "requirements.toml"))
        self._text: str | None = text

    async def read_as_is(self) -> Config:
        found = await super().read_as_is()
        if self._text is not None:
            self.file.write_text(self._text)
            then = time.time() - 1
            os.utime(self.file, (then, then))
            self._text = None
        return found


async def test_a_version_that_was_replaced_while_it_was_read_is_not_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text("")
    live = LiveSettings(WrittenMeanwhile(tmp_path, 'model = "m"\n'), str(tmp_path))
    found = await live.changed()
    assert found is not None
    assert found.base.document == {"model": "m"}
    assert await live.changed() is None

"""What is read once: the default stands for what cannot be used, and for nothing else."""

from pathlib import Path

from app_server.config.effective import ConfigSources, Configuration
from app_server.server.services import FirstSettings, read_first_settings
from app_server.sessions.memory_budget import MemorySettings

RIGHT = "thread_unload_delay_secs = 7\nmemory_budget_bytes = 2097152\nanalytics.enabled = true\n"
READ = FirstSettings(7.0, MemorySettings(budget_bytes=2097152), counts_use=True)


async def read(home: Path, text: str) -> FirstSettings:
    (home / "config.toml").write_text(text)
    sources = ConfigSources(home, home, requirements=home / "requirements.toml")
    return await read_first_settings(Configuration(sources))


async def test_a_value_that_does_not_fit_takes_nothing_from_the_others(tmp_path: Path) -> None:
    assert await read(tmp_path, RIGHT) == READ
    wrong = RIGHT.replace("= 7", '= "soon"')
    assert await read(tmp_path, wrong) == FirstSettings(memory=READ.memory, counts_use=True)
    wrong = RIGHT.replace("2097152", "1")
    assert await read(tmp_path, wrong) == FirstSettings(7.0, counts_use=True)
    assert await read(tmp_path, RIGHT.replace("true", "5")) == FirstSettings(7.0, READ.memory)
    assert await read(tmp_path, f"{RIGHT}=") == FirstSettings()

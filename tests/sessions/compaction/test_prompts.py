"""What asks for a summary, and the offline model that writes one."""

from pathlib import Path

import pytest

from app_server.config.config_toml import read_config
from app_server.config.values import ConfigError
from app_server.models import offline
from app_server.models.prompt.context import (
    SUMMARY_PREFIX,
)
from app_server.models.prompt.environment_context import FACTS, PERMISSIONS, kind_of
from app_server.models.prompt.request import message
from app_server.turns.session_settings import (
    MAX_PROMPT_BYTES,
    read_compact_prompt,
)
from tests.support.harness import (
    claim,
    serve,
)
from tests.support.threads.compaction import compact, stored, talked


@claim("compact:prompt")
async def test_the_users_own_instructions_for_summaries_are_used(tmp_path: Path) -> None:
    (tmp_path / "sum.md").write_text("  from a file \n")
    for config, prompt in (
        ('compact_prompt = " mine "', "mine"),
        ('experimental_compact_prompt_file = "sum.md"', "from a file"),
        ('compact_prompt = "wins"\nexperimental_compact_prompt_file = "sum.md"', "wins"),
    ):
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await talked(served, client, "one")
            await compact(client, thread_id)
            assert served.model.inputs()[-1] == ("user", prompt)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty"),
        (b"\xff", "is not UTF-8"),
        (b"x" * (MAX_PROMPT_BYTES + 1), f"is larger than {MAX_PROMPT_BYTES} bytes"),
    ],
)
async def test_a_prompt_file_that_is_no_prompt_is_an_error(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "sum.md").write_bytes(content)
    (tmp_path / "config.toml").write_text('experimental_compact_prompt_file = "sum.md"')
    with pytest.raises(ConfigError) as caught:
        await read_compact_prompt(read_config(tmp_path / "config.toml").view())
    file = tmp_path / "sum.md"
    assert str(caught.value).endswith(f": experimental compact prompt file {file} {problem}")


async def test_a_prompt_file_whose_path_is_no_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('experimental_compact_prompt_file = "\\u0000"')
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        await read_compact_prompt(read_config(tmp_path / "config.toml").view())


@claim("compact:offline")
async def test_the_offline_model_sums_up_the_same_way_each_time(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(modelProvider="offline")
        await client.turn(thread_id, "hello   there")
        await compact(client, thread_id)
        history = (await stored(served, thread_id)).history
        summary = (
            "This is the offline model: it repeats what it is told. The last messages, after 0 "
            "others:\n- user: hello there\n- assistant: This is the offline model: it repeats "
            "what it is told. You said: hello there"
        )
        assert [kind_of(item) for item in history[:2]] == [PERMISSIONS, FACTS]
        assert history[2:] == [
            message("user", "hello   there"),
            message("user", SUMMARY_PREFIX + summary),
        ]
        end = await client.turn(thread_id, "on")
        assert end["items"][0]["text"].endswith("You said: on")


def test_the_summary_of_the_offline_model_is_bounded() -> None:
    body = {
        "client_metadata": {"request_kind": "compaction"},
        "input": [message("user", "x" * 10_000) for _ in range(100)],
    }
    (content,) = offline.reply(body)["content"]
    assert len(content["text"]) < 2000
    assert "after 91 others" in content["text"]

"""images: files of another environment."""

from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.images import MAX_IMAGE_BYTES
from tests.support.files.images import PNG, PNG_URL
from tests.support.harness import claim
from tests.support.host.elsewhere import add, desk_there, entry
from tests.support.host.exec_conversations import listening
from tests.support.turn_tools.turn_commands import desk

NO_PATH = "it is not an absolute path of at most 4096 characters, without a null character"
SHOWN: Any = [{"type": "input_image", "image_url": PNG_URL}]


def view(path: str, **more: Any) -> dict[str, Any]:
    return {"name": "view_image", "arguments": {"path": path, **more}}


@claim("environment:images")
async def test_the_model_sees_an_image_of_the_first_environment(tmp_path: Path) -> None:
    async with desk_there(tmp_path, "read-only") as at:
        (at.folder / "a.png").write_bytes(PNG)
        assert await at.turn(view("a.png")) == [SHOWN]
        [item] = [
            message["params"]["item"]
            for message in at.messages
            if message.get("method") == "item/completed"
            and message["params"]["item"]["type"] == "imageView"
        ]
        assert item["path"] == f"{at.folder}/a.png"


@claim("environment:images")
async def test_the_model_names_the_environment_of_an_image(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (far / "a.png").write_bytes(PNG)
    async with listening() as url, desk(tmp_path / "at") as at:
        await add(at.client, url)
        chosen = [entry(at.folder, "local"), entry(far)]
        await at.client.call(
            "thread/settings/update", {"threadId": at.thread_id, "environments": chosen}
        )
        missing, shown = await at.turn(view("a.png"), view("a.png", environment_id="there"))
        assert missing == f"cannot view the image {at.folder}/a.png: No such file or directory"
        assert shown == SHOWN


@claim("environment:images")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none.png", "No such file or directory"),
        ("text.png", "it is not a PNG, JPEG, GIF or WebP image"),
        ("large.png", "it has more than 8388608 bytes"),
        (".", "it is not a file"),
        ("a\0", NO_PATH),
        ("a" * 5000, NO_PATH),
    ],
)
async def test_what_is_no_image_there_is_refused_as_here(
    tmp_path: Path, name: str, reason: str
) -> None:
    async with desk_there(tmp_path) as at:
        (at.folder / "text.png").write_text("text")
        (at.folder / "large.png").write_bytes(PNG + bytes(MAX_IMAGE_BYTES))
        [output] = await at.turn(view(name))
        path = at.folder / name
        assert output == f"cannot view the image {path}: {reason}"


@claim("environment:images")
async def test_an_image_of_an_environment_that_is_away_cannot_be_viewed(tmp_path: Path) -> None:
    async with desk(tmp_path / "at") as at:
        async with listening() as url:
            pass
        await add(at.client, url)
        [output] = await at.turn(view("a.png", environment_id="there"))
        assert output.startswith("cannot view the image a.png: environment `there`: ")

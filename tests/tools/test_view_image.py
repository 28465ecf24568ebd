"""A look of the model at an image file: what it gets, what clients see, what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.images import MAX_IMAGE_BYTES
from tests.support.files.images import PNG, PNG_URL
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.model import ScriptedModel, calls, says

NO_IMAGE = "it is not a PNG, JPEG, GIF or WebP image"


def views(**arguments: Any) -> list[Any]:
    return calls({"name": "view_image", "arguments": arguments})


async def turn(served: Served, client: WireClient, **arguments: Any) -> list[Any]:
    """Run a turn with one view; returns the items of tools that clients got."""
    served.model.scripts += [views(**arguments), says("done")]
    thread_id = await client.start_thread(cwd=str(served.home / "work"))
    said = [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": said})
    messages = await client.until("turn/completed")
    return [
        (message["method"], message["params"]["item"])
        for message in messages
        if message.get("method", "").startswith("item/")
        and message["params"].get("item", {}).get("type") == "imageView"
    ]


def output(served: Served) -> Any:
    [item] = [item for item in served.model.items() if item["type"] == "function_call_output"]
    return item["output"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.png").write_bytes(PNG)
    return folder


@claim("images:viewed")
@pytest.mark.parametrize("name", ["a.png", "./a.png", "../work/a.png", "{work}/a.png"])
async def test_the_model_sees_an_image(tmp_path: Path, work: Path, name: str) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        path = name.format(work=work)
        seen = await turn(served, client, path=path)
        assert [method for method, _ in seen] == ["item/started", "item/completed"]
        for _, item in seen:
            assert (item["id"], item["path"]) == ("call_1", str(work / path))
        assert output(served) == [{"type": "input_image", "image_url": PNG_URL}]
        [tool] = [
            tool for tool in served.model.requests[0]["tools"] if tool.get("name") == "view_image"
        ]
        assert tool["parameters"]["required"] == ["path"]


@claim("images:refused")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none.png", "No such file or directory"),
        ("folder", "it is not a file"),
        ("pipe.png", "it is not a file"),
        ("text.png", NO_IMAGE),
        ("large.png", "it has more than 8388608 bytes"),
        ("a\0.png", "it cannot be read"),
    ],
)
async def test_what_is_no_image_is_refused(
    tmp_path: Path, work: Path, name: str, reason: str
) -> None:
    (work / "folder").mkdir()
    os.mkfifo(work / "pipe.png")
    (work / "text.png").write_text("hello")
    (work / "large.png").write_bytes(PNG.ljust(MAX_IMAGE_BYTES + 1, b"\0"))
    async with serve(tmp_path) as served, served.client() as client:
        assert await turn(served, client, path=name) == []
        assert output(served) == f"cannot view the image {work / name}: {reason}"


@claim("images:refused")
@pytest.mark.parametrize("way", ["absolute", "link", "folder link", "dots"])
async def test_what_may_not_be_read_is_not_shown(tmp_path: Path, work: Path, way: str) -> None:
    secret = tmp_path / "auth.json"
    secret.write_bytes(PNG)
    (work / "link.png").symlink_to(secret)
    (work / "out").symlink_to(tmp_path)
    name = {
        "absolute": str(secret),
        "link": "link.png",
        "folder link": "out/auth.json",
        "dots": "../auth.json",
    }[way]
    async with serve(tmp_path) as served, served.client() as client:
        assert await turn(served, client, path=name) == []
        assert output(served) == f"cannot view the image {work / name}: not allowed by the sandbox"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "path: Field required"),
        ({"path": 5}, "path: Input should be a valid string"),
        ({"path": "a.png", "size": 1}, "size: Extra inputs are not permitted"),
    ],
)
async def test_wrong_arguments_are_named(
    tmp_path: Path, work: Path, arguments: dict[str, Any], problem: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert await turn(served, client, **arguments) == []
        assert output(served) == f"failed to parse function arguments: {problem}"


async def test_a_model_without_images_gets_an_error(tmp_path: Path, work: Path) -> None:
    model = ScriptedModel()
    model.models = {"data": [{"id": "scripted", "input_modalities": ["text"]}]}
    async with serve(tmp_path, model=model) as served, served.client() as client:
        assert await turn(served, client, path="a.png") == []
        assert output(served) == "view_image is not available: this model takes no images"

"""Which images a model is shown, and what it reads in the place of others."""

import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.models.prompt.images import (
    MAX_IMAGE_BYTES,
    NOT_TAKEN,
    BadImage,
    check_url,
    image_url,
    without_images,
)
from tests.support.files.images import GIF, JPEG, PNG, PNG_URL, WEBP
from tests.support.harness import claim, serve
from tests.support.model import ScriptedModel

NONE = "it is not a PNG, JPEG, GIF or WebP image"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "png"),
        (GIF, "gif"),
        (GIF.replace(b"89a", b"87a"), "gif"),
        (WEBP, "webp"),
        (JPEG, "jpeg"),
    ],
)
def test_the_content_tells_what_an_image_is(content: bytes, kind: str) -> None:
    url = image_url(content)
    assert url == f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    check_url(url)
    assert len(image_url(content.ljust(MAX_IMAGE_BYTES, b"\0"))) > MAX_IMAGE_BYTES


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        PNG[:8],
        PNG[:30],
        PNG[:16] + b"\0\0\0\0" + PNG[20:],
        PNG.replace(b"IHDR", b"IHDX"),
        GIF[:6],
        GIF[:6] + b"\0\0\1\0",
        WEBP[:12],
        WEBP.replace(b"VP8L", b"VP9 "),
        JPEG[:3],
        JPEG[:20],
        JPEG.replace(b"\xc0", b"\xc4"),
        b"<svg/>",
        b"BM" + b"\0" * 60,
    ],
)
def test_what_is_none_of_the_formats_is_refused(content: bytes) -> None:
    with pytest.raises(BadImage, match=NONE):
        image_url(content)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png;base64,AA==", NONE),
        ("data:text/plain;base64,aGVsbG8=", NONE),
        ("data:image/png,x", "it is not written in base64"),
        ("data:image/png;base64,A", "it is not written in base64"),
        ("data:image/png;base64,%%%%", "it is not written in base64"),
    ],
)
def test_an_image_in_a_url_is_checked_as_well(url: str, reason: str) -> None:
    with pytest.raises(BadImage, match=reason):
        check_url(url)


def test_an_image_above_the_bound_is_refused() -> None:
    with pytest.raises(BadImage, match="it has more than 8388608 bytes"):
        image_url(PNG.ljust(MAX_IMAGE_BYTES + 1, b"\0"))
    with pytest.raises(BadImage, match="it has more than 8388608 bytes"):
        check_url(PNG_URL + "A" * (MAX_IMAGE_BYTES // 3 * 4 + 8))


def test_urls_elsewhere_are_for_whoever_serves_the_model() -> None:
    check_url("https://pictures.example/a.png")


@given(st.binary(max_size=64), st.sampled_from([b"", PNG[:8], GIF[:6], b"\xff\xd8\xff", b"RIFF"]))
def test_any_bytes_are_an_image_or_none(content: bytes, beginning: bytes) -> None:
    with suppress(BadImage):
        check_url(image_url(beginning + content))


def test_images_leave_a_note_behind() -> None:
    image = {"type": "input_image", "image_url": PNG_URL}
    text = {"type": "input_text", "text": "a"}
    note = {"type": "input_text", "text": NOT_TAKEN}
    history: list[Any] = [
        {"type": "message", "role": "user", "content": [text, image]},
        {"type": "message", "role": "user", "content": "plain"},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
        {"type": "function_call_output", "call_id": "c", "output": "plain"},
    ]
    assert without_images(history) == [
        {"type": "message", "role": "user", "content": [text, note]},
        history[1],
        {"type": "function_call_output", "call_id": "c", "output": [note]},
        history[3],
    ]
    assert history[0]["content"] == [text, image]


@claim("images:not-taken")
async def test_a_model_that_takes_no_images_gets_none(tmp_path: Path) -> None:
    model = ScriptedModel()
    document = {
        "data": [{"id": "scripted"}],
        "models": [{"name": "scripted", "capabilities": ["completion"]}],
    }
    model.models = document
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        said = [{"type": "text", "text": "look"}, {"type": "image", "url": PNG_URL}]
        await client.call("turn/start", {"threadId": thread_id, "input": said})
        await client.wait_for("turn/completed")
        assert served.model.items()[-1]["content"] == [
            {"type": "input_text", "text": "look"},
            {"type": "input_text", "text": NOT_TAKEN},
        ]
        names = [tool.get("name") for tool in served.model.requests[-1]["tools"]]
        assert "view_image" not in names

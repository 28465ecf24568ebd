"""AGENTS.md of projects on other machines."""

from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.environment_context import INSTRUCTIONS, newest_of_each
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.host.elsewhere import add, entry
from tests.support.host.exec_conversations import listening


def instructions(served: Served) -> str | None:
    """Give the instructions that the model was shown last."""
    shown = dict(newest_of_each(served.model.requests[-1]["input"]))
    item: Any = shown.get(INSTRUCTIONS)
    return None if item is None else item["content"][0]["text"]


def project(root: Path) -> Path:
    """Make a repository with instructions for it and for a folder in it."""
    work = root / "far" / "sub"
    work.mkdir(parents=True)
    (root / "far/.git").mkdir()
    (root / "far/.git/HEAD").write_text("ref: refs/heads/main")
    (root / "AGENTS.md").write_text("BEYOND")
    (root / "far/AGENTS.md").write_text("PROJECT")
    (work / "AGENTS.override.md").write_text("FOLDER")
    (work / "AGENTS.md").write_text("COVERED")
    return work


async def started(client: WireClient, folder: Path) -> Any:
    return await client.call("thread/start", {"environments": [entry(folder)]})


@claim("environment:agents")
async def test_instructions_are_those_of_the_environment(tmp_path: Path) -> None:
    work = project(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / "AGENTS.md").write_text("USER")
    async with listening() as url, serve(home) as served, served.client() as client:
        await add(client, url)
        result = await started(client, work)
        sources = [home / "AGENTS.md", work.parent / "AGENTS.md", work / "AGENTS.override.md"]
        assert result["instructionSources"] == [str(path) for path in sources]
        thread_id = result["thread"]["id"]
        await client.turn(thread_id, "hi")
        assert instructions(served) == (
            f'<project_instructions folder="{work}">\nUSER\n\nPROJECT\n\nFOLDER\n'
            "</project_instructions>"
        )
        await client.turn(thread_id, "hi", environments=[entry(work.parent)])
        shown = instructions(served)
        assert shown is not None
        assert ("PROJECT" in shown, "FOLDER" in shown) == (True, False)


@claim("environment:agents")
@pytest.mark.parametrize("places", [["there", "local"], ["local", "there"]])
async def test_instructions_of_several_environments_come_in_their_order(
    tmp_path: Path, places: list[str]
) -> None:
    far, near, home = project(tmp_path), tmp_path / "near", tmp_path / "home"
    (near / ".git").mkdir(parents=True)
    (near / ".git/HEAD").touch()
    home.mkdir()
    for folder, text in ((near, "NEAR"), (home, "USER")):
        (folder / "AGENTS.md").write_text(text)
    folders = {"there": far, "local": near}
    parts = {
        "there": f"Of the environment `there`, in {far}:\n\nPROJECT\n\nFOLDER",
        "local": f"Of the environment `local`, in {near}:\n\nNEAR",
    }
    sources = {
        "there": [f"{far.parent}/AGENTS.md", f"{far}/AGENTS.override.md"],
        "local": [f"{near}/AGENTS.md"],
    }
    async with listening() as url, serve(home) as served, served.client() as client:
        await add(client, url)
        chosen = [entry(folders[place], place) for place in places]
        result = await client.call("thread/start", {"environments": chosen})
        assert result["instructionSources"] == [
            f"{home}/AGENTS.md",
            *(path for place in places for path in sources[place]),
        ]
        thread_id = result["thread"]["id"]
        await client.turn(thread_id, "hi")
        texts = "\n\n".join(["USER", *(parts[place] for place in places)])
        assert instructions(served) == (
            f'<project_instructions folder="{folders[places[0]]}">\n{texts}\n'
            "</project_instructions>"
        )
        # The folder of one that is not the first is looked at as well.
        chosen[1] = entry(tmp_path / "none", places[1])
        await client.turn(thread_id, "hi", environments=chosen)
        shown = instructions(served)
        assert shown is not None
        assert [parts[place] in shown for place in places] == [True, False]


@claim("environment:agents", "agents:bounds")
@pytest.mark.parametrize(
    ("limit", "words", "warning"),
    [
        (10, "NE", "the first 2 of 4 bytes of AGENTS.md in {near} (`local`) are read"),
        (8, None, "AGENTS.md in {near} (`local`) is left out"),
    ],
)
async def test_projects_of_several_environments_share_one_bound(
    tmp_path: Path, limit: int, words: str | None, warning: str
) -> None:
    far, near = tmp_path / "far", tmp_path / "near"
    for folder, text in ((far, "FAR AWAY"), (near, "NEAR")):
        folder.mkdir()
        (folder / "AGENTS.md").write_text(text)
    config = f"project_doc_max_bytes = {limit}\n"
    async with (
        listening() as url,
        serve(tmp_path / "home", config=config) as served,
        served.client() as client,
    ):
        await add(client, url)
        chosen = [entry(far), entry(near, "local")]
        result = await client.call("thread/start", {"environments": chosen})
        wanted = warning.format(near=near)
        rule = f"{wanted}: all projects have {limit} bytes together (project_doc_max_bytes)"
        await client.wait_for("warning", lambda params: params["message"] == rule)
        await client.turn(result["thread"]["id"], "hi")
        texts = [f"Of the environment `there`, in {far}:\n\nFAR AWAY"]
        if words is not None:
            texts.append(f"Of the environment `local`, in {near}:\n\n{words}")
        shown = "\n\n".join(texts)
        assert instructions(served) == (
            f'<project_instructions folder="{far}">\n{shown}\n</project_instructions>'
        )


@claim("environment:agents")
async def test_what_cannot_be_read_there_is_named(tmp_path: Path) -> None:
    work = project(tmp_path)
    (work / "AGENTS.override.md").unlink()
    (work / "AGENTS.md").unlink()
    (work / "AGENTS.md").symlink_to(tmp_path / "AGENTS.md")
    async with listening() as url, serve(tmp_path / "home") as served, served.client() as client:
        await add(client, url)
        result = await started(client, work)
        assert result["instructionSources"] == [f"{work.parent}/AGENTS.md"]
        warning = (await client.wait_for("warning"))["params"]["message"]
        assert warning == f"{work}/AGENTS.md cannot be read: not allowed by the sandbox"


@claim("environment:agents")
@pytest.mark.parametrize(
    ("limit", "words", "warning"),
    [
        (0, None, None),
        (3, "PRO", "{far}/AGENTS.md was cut: only its first 3 of 7 bytes are read"),
        (9, "FO", "{far}/sub/AGENTS.override.md was cut: only its first 2 of 6 bytes are read"),
        (
            7,
            "PROJECT",
            "{far}/sub/AGENTS.override.md and what follows it was left out: the project's "
            "instructions have 7 bytes already (project_doc_max_bytes)",
        ),
    ],
)
async def test_files_there_have_the_same_bound(
    tmp_path: Path, limit: int, words: str | None, warning: str | None
) -> None:
    work = project(tmp_path)
    config = f"project_doc_max_bytes = {limit}\n"
    async with (
        listening() as url,
        serve(tmp_path / "home", config=config) as served,
        served.client() as client,
    ):
        await add(client, url)
        thread_id = (await started(client, work))["thread"]["id"]
        if warning is not None:
            wanted = warning.format(far=work.parent)
            await client.wait_for("warning", lambda params: params["message"] == wanted)
        await client.turn(thread_id, "hi")
        shown = instructions(served)
        assert (shown is None) == (words is None)
        assert words is None or (shown or "").splitlines()[-2] == words


@claim("environment:agents")
async def test_a_machine_that_is_away_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    work = project(tmp_path)
    async with serve(tmp_path / "home") as served, served.client() as client:
        async with listening() as url:
            pass
        await add(client, url)
        result = await started(client, work)
        assert result["instructionSources"] == []
        warning = (await client.wait_for("warning"))["params"]["message"]
        assert warning == f"environment `there` is out of reach: AGENTS.md of {work} was not read"
        thread_id = result["thread"]["id"]
        await client.turn(thread_id, "hi")
        assert instructions(served) is None
        async with listening() as url:
            await add(client, url)
            await client.turn(thread_id, "again")
        shown = instructions(served)
        assert shown is not None
        assert "PROJECT" in shown

"""Files of this machine where only some may be read: links, `..`, and what is put in between."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app_server.apps.files.environments import CONFINED, look_at, open_file
from app_server.apps.files.files import FileRefused
from app_server.permissions.readable import MAX_ENTRIES, readable
from app_server.permissions.sandbox.policy import effective_policy_of
from app_server.permissions.sandbox.roots import read_machine_paths
from app_server.runtime.files import reaching
from app_server.runtime.files.reaching import MAX_FOLDERS
from app_server.tools.mcp.model_calls import sandbox_state
from protocol.log.rollout import Settings
from protocol.model import Json
from protocol.turns.policy import ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy
from tests.support.apps.files.local import FILES, entry, managed, state, whole
from tests.support.harness import claim


def place(path: object, access: str = "read") -> Json:
    return {"path": {"type": "path", "path": str(path)}, "access": access}


def pattern(text: str, access: str = "deny") -> Json:
    return {"path": {"type": "glob_pattern", "pattern": text}, "access": access}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project, and a secret beside it."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


def in_project(project: Path, *more: Json) -> dict[str, Any]:
    """Make the state of a turn that may read its project."""
    profile = managed(entry("write", "project_roots"), *more)
    return {"permissionProfile": profile, "sandboxCwd": project.as_uri()}


async def found(path: Path, **members: Any) -> str:
    """Look at a file and read it: its text, or why not, which both must agree on."""
    answers = set()
    async with FILES.pin(state(**members)) as files:
        for look in (files.metadata, lambda path: whole(files, path)):
            try:
                answer = await look(str(path))
            except FileRefused as exc:
                answers.add(f"refused: {exc}")
            else:
                if isinstance(answer, list):
                    answers.add(b"".join(answer).decode())
                else:
                    assert answer.is_file
                    answers.add(path.read_text())
    [one] = answers
    return one


REFUSED = f"refused: {CONFINED}"


@claim("apps:r3")
async def test_what_lies_in_the_project_is_read_and_nothing_else(project: Path) -> None:
    rules = in_project(project)
    assert await found(project / "a.txt", **rules) == "a"
    assert await found(project / "sub" / "b.txt", **rules) == "b"
    assert await found(project / "sub" / ".." / "a.txt", **rules) == "a"
    assert await found(project.parent / "secret.txt", **rules) == REFUSED
    assert await found(project / ".." / "secret.txt", **rules) == REFUSED
    assert await found(project / "sub" / ".." / ".." / "secret.txt", **rules) == REFUSED
    assert await found(Path("/../../etc/hostname"), **rules) == REFUSED
    # What is missing is told apart only where one may look.
    assert await found(project / "no", **rules) == "refused: No such file or directory"
    assert await found(project.parent / "no", **rules) == REFUSED
    assert await found(project / "a.txt" / "x", **rules) == "refused: Not a directory"


@claim("apps:r3")
async def test_a_link_counts_as_what_it_leads_to(project: Path) -> None:
    rules = in_project(project)
    links = {
        "inside": "sub/b.txt",
        "around": "./sub/../a.txt",
        "whole": str(project / "a.txt"),
        "out": "../secret.txt",
        "out-whole": str(project.parent / "secret.txt"),
        "folder": "sub",
        "up": "..",
        "round": "round",
        "root": "/",
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    (project.parent / "in").symlink_to(project)
    assert await found(project / "inside", **rules) == "b"
    assert await found(project / "around", **rules) == "a"
    assert await found(project / "whole", **rules) == "a"
    assert await found(project / "folder" / "b.txt", **rules) == "b"
    assert await found(project.parent / "in" / "a.txt", **rules) == "a"
    assert await found(project / "out", **rules) == REFUSED
    assert await found(project / "out-whole", **rules) == REFUSED
    assert await found(project / "up" / "secret.txt", **rules) == REFUSED
    assert await found(project / "root" / "etc" / "hostname", **rules) == REFUSED
    assert await found(project / "round", **rules) == ("refused: Too many levels of symbolic links")
    (project.parent / "round").symlink_to("round")
    assert await found(project.parent / "round", **rules) == REFUSED
    # The project may be a link itself.
    seen_through = in_project(project.parent / "in")
    assert await found(project / "a.txt", **seen_through) == "a"


def after_the_look(
    monkeypatch: pytest.MonkeyPatch, happens: Mapping[str, Callable[[], None]]
) -> None:
    """Let something happen to a name once it was looked at, and before it is opened."""
    real_open = os.open

    def open_after_change(name: str, flags: int, **more: Any) -> int:
        happens.get(name, lambda: None)()
        return real_open(name, flags, **more)

    monkeypatch.setattr(os, "open", open_after_change)


@claim("apps:r3")
def test_a_link_that_is_put_in_the_way_after_the_look_is_not_followed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = readable(managed(entry("read", "project_roots")), str(project))

    def swap_file() -> None:
        (project / "a.txt").unlink()
        (project / "a.txt").symlink_to(project.parent / "secret.txt")

    def swap_folder() -> None:
        (project / "sub").rename(project / "was")
        (project / "sub").symlink_to(project.parent)

    after_the_look(monkeypatch, {"a.txt": swap_file, "sub": swap_folder})
    for path in ("a.txt", "sub/secret.txt"):
        with pytest.raises(FileRefused):
            open_file(str(project / path), rules.allows)


@claim("apps:r3")
def test_a_pipe_that_takes_the_place_of_a_file_is_refused_without_waiting(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = readable(managed(entry("read", "project_roots")), str(project))

    def swap() -> None:
        (project / "a.txt").unlink()
        os.mkfifo(project / "a.txt")

    after_the_look(monkeypatch, {"a.txt": swap})
    with pytest.raises(FileRefused, match=r"^it is not a file$"):
        open_file(str(project / "a.txt"), rules.allows)


@claim("apps:r3")
async def test_the_nearest_rule_decides_and_of_two_the_prohibition(project: Path) -> None:
    (project / "sub" / "deep").mkdir()
    (project / "sub" / "deep" / "c.txt").write_text("c")
    sub = project / "sub"
    closed = in_project(project, place(sub, "deny"))
    assert await found(project / "a.txt", **closed) == "a"
    assert await found(sub / "b.txt", **closed) == REFUSED
    opened = in_project(project, place(sub, "deny"), place(sub / "deep"))
    assert await found(sub / "deep" / "c.txt", **opened) == "c"
    both = in_project(project, place(sub, "read"), place(sub, "none"))
    assert await found(sub / "b.txt", **both) == REFUSED
    # A name in another case may be the same folder.
    shouted = in_project(project, place(str(sub).replace("sub", "SUB"), "deny"))
    assert await found(sub / "b.txt", **shouted) == REFUSED
    all_but = {"permissionProfile": managed(entry(), place(project.parent / "secret.txt", "deny"))}
    assert await found(sub / "b.txt", **all_but) == "b"
    assert await found(project.parent / "secret.txt", **all_but) == REFUSED
    # A prohibition holds for what its path leads to.
    (project / "link").symlink_to(sub)
    via_link = in_project(project, place(project / "link", "deny"))
    assert await found(sub / "b.txt", **via_link) == REFUSED


@claim("apps:r3")
async def test_patterns_forbid_and_never_allow(project: Path) -> None:
    (project / ".env").write_text("x")
    (project / "sub" / ".env").write_text("x")
    (project.parent / "in").symlink_to(project)
    for text in ("**/.env", f"{project}/**/.env", f"{project.parent}/in/**/.ENV", "/**/.env"):
        rules = in_project(project, pattern(text))
        assert await found(project / ".env", **rules) == REFUSED
        assert await found(project / "sub" / ".env", **rules) == REFUSED
        assert await found(project / "sub" / "b.txt", **rules) == "b"
    folder = in_project(project, pattern("s?b"))
    assert await found(project / "sub" / "b.txt", **folder) == REFUSED
    assert await found(project / "a.txt", **folder) == "a"
    (project / "link").symlink_to("sub")
    plain = in_project(project, pattern("link"))
    assert await found(project / "sub" / "b.txt", **plain) == REFUSED
    allowing = in_project(project, pattern(f"{project.parent}/*", "read"))
    assert await found(project.parent / "secret.txt", **allowing) == REFUSED


@claim("apps:r3")
@pytest.mark.parametrize(
    "profile",
    [
        managed(entry("read", "project_roots"), pattern("**/*.{key,pem}")),
        managed(entry("read", "project_roots"), pattern("[ab]")),
        managed(entry("read", "project_roots"), pattern("*/../a.txt")),
        managed(entry("read", "project_roots"), entry("deny", "minimal")),
        managed(entry("read", "project_roots"), place("relative", "deny")),
        managed(entry("read", "project_roots"), entry("look", "root")),
        managed(entry("read", "project_roots"), "root"),
        managed(*[entry("read", "project_roots")] * (MAX_ENTRIES + 1)),
        managed(entry("read", "minimal"), entry("read", "unknown")),
        {"type": "managed"},
        {"type": "other"},
    ],
)
async def test_what_is_not_understood_forbids_and_allows_nothing(
    project: Path, profile: Any
) -> None:
    with pytest.raises(FileRefused) as refused:
        await found(project / "a.txt", permissionProfile=profile, sandboxCwd=project.as_uri())
    assert str(refused.value) == CONFINED


@claim("apps:r3")
def test_special_places_are_those_of_this_machine(project: Path) -> None:
    def allows(entry_: Json, path: Path, **environ: str) -> bool:
        rules = readable(managed(entry_), str(project), environ)
        return rules.allows(Path(os.path.realpath(path)).parts[1:])

    below: Json = {
        "path": {"type": "special", "value": {"kind": "project_roots", "subpath": "sub"}},
        "access": "read",
    }
    assert allows(below, project / "sub" / "b.txt")
    assert not allows(below, project / "a.txt")
    assert allows(entry("read", "slash_tmp"), Path("/tmp/x"))
    assert allows(entry("write", "tmpdir"), project / "a.txt", TMPDIR=str(project))
    assert not allows(entry("write", "tmpdir"), project / "a.txt", TMPDIR="relative")
    assert not allows(entry("write", "tmpdir"), project / "a.txt")


@claim("apps:r3")
def test_a_walk_is_bounded_and_closes_what_it_opened(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/dev/fd"))
    deep = project
    for _ in range(MAX_FOLDERS):
        deep /= "d"
    deep.mkdir(parents=True)
    with pytest.raises(FileRefused, match=r"^it cannot be read$"):
        look_at(str(deep / "x"), lambda parts: True)
    monkeypatch.setattr(reaching, "MAX_PARTS", 10)
    with pytest.raises(FileRefused, match=r"^it cannot be read$"):
        look_at(f"{project}/" + "sub/../" * 20, lambda parts: True)
    for path in ("a.txt", "no", "a\0b"):
        with contextlib.suppress(FileRefused):
            open_file(str(project / path), lambda parts: True).close()
    assert len(os.listdir("/dev/fd")) == before


@claim("sandbox:one-value")
async def test_what_commands_cannot_read_is_not_uploaded_either(project: Path) -> None:
    user = project.parent / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh" / "id").write_text("key")
    (project / "link").symlink_to(user / ".ssh")
    places = read_machine_paths(str(project.parent / "home"), (), {"HOME": str(user)})
    for policy in (ReadOnlySandboxPolicy(), WorkspaceWriteSandboxPolicy()):
        settings = Settings(
            model="m",
            model_provider="p",
            cwd=str(project),
            approval_policy="never",
            sandbox_policy=policy,
        )
        told = sandbox_state(settings, effective_policy_of(settings, places))
        rules = {name: told[name] for name in ("permissionProfile", "sandboxCwd")}
        assert await found(user / ".ssh" / "id", **rules) == REFUSED
        assert await found(project / "link" / "id", **rules) == REFUSED
        assert await found(project / "a.txt", **rules) == "a"
        assert await found(project.parent / "secret.txt", **rules) == "secret"

"""cli: the Python SDK of the reference, as it is, starts the executable and talks to it.

The SDK takes most of a second to import: the tests do it, and not each process that collects them.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients.python_sdk import use_the_sdk
from tests.support.harness import claim, environment_without, write_config
from tests.support.host.sandboxes import working_sandbox
from tests.support.model import Gate, ScriptedModel, calls, says
from tests.support.processes import EXECUTABLE

if TYPE_CHECKING:
    import openai_codex

pytestmark = pytest.mark.process


@claim("process:python-sdk")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_python_sdk_of_the_reference_works_unchanged(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        gate = Gate()
        model.scripts += [says("first"), says("sec", "ond"), [*says("third")[:2], gate]]
        await asyncio.to_thread(use_the_sdk, EXECUTABLE, tmp_path, gate, asyncio.get_running_loop())


@pytest.mark.slow
@claim("process:sdk-sandbox")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_sandbox_and_approval_options_of_the_python_sdk_hold(tmp_path: Path) -> None:
    working_sandbox()
    folder = tmp_path / "work"
    folder.mkdir()
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        outputs = await asyncio.to_thread(_choose_sandboxes, tmp_path, folder, model)
    read_only, inside, outside, denied, reviewed, full = outputs
    assert "Read-only file system" in read_only
    assert "exited with code 0" in inside
    assert "Read-only file system" in outside
    assert "exited with code" not in denied
    assert "exited with code" not in reviewed
    assert "exited with code 0" in full
    assert sorted(path.name for path in folder.iterdir()) == ["b"]
    assert (tmp_path / "f").exists()
    assert not any((tmp_path / name).exists() for name in "cde")


def _choose_sandboxes(home: Path, folder: Path, model: ScriptedModel) -> list[str]:
    import openai_codex

    environment = environment_without("APP_SERVER_HOME") | {"CODEX_HOME": str(home)}
    config = openai_codex.CodexConfig(codex_bin=str(EXECUTABLE), env=environment, cwd=str(home))
    sandboxes, modes = openai_codex.Sandbox, openai_codex.ApprovalMode
    outputs: list[str] = []

    def touch(path: Path, *, escalates: bool = False) -> list[Any]:
        arguments: dict[str, Any] = {"cmd": f"touch {path}", "login": False}
        if escalates:
            arguments |= {"sandbox_permissions": "require_escalated", "justification": "May I?"}
        return calls({"name": "exec_command", "arguments": arguments})

    def run(thread: "openai_codex.Thread", *scripts: list[Any]) -> None:
        model.scripts[:] = [*scripts, says("done")]
        assert thread.run("go").final_response == "done"
        outputs.extend(item["output"] for item in model.items() if "output" in item)

    with openai_codex.Codex(config) as codex:

        def start(
            sandbox: "openai_codex.Sandbox", mode: "openai_codex.ApprovalMode"
        ) -> "openai_codex.Thread":
            return codex.thread_start(cwd=str(folder), sandbox=sandbox, approval_mode=mode)

        run(start(sandboxes.read_only, modes.deny_all), touch(folder / "a"))
        run(start(sandboxes.workspace_write, modes.deny_all), touch(folder / "b"))
        run(start(sandboxes.workspace_write, modes.deny_all), touch(home / "c"))
        run(start(sandboxes.read_only, modes.deny_all), touch(home / "d", escalates=True))
        refusal = (
            '{"risk_level": "high", "user_authorization": "low", "outcome": "deny", '
            '"rationale": "No."}'
        )
        thread = start(sandboxes.read_only, modes.auto_review)
        run(thread, touch(home / "e", escalates=True), says(refusal))
        run(start(sandboxes.full_access, modes.deny_all), touch(home / "f"))
    return outputs


@pytest.mark.slow
@claim("process:sdk-schema")
def test_the_python_sdk_finds_the_members_it_looks_for_in_the_schema(tmp_path: Path) -> None:
    from openai_codex._runtime_requirements import CheckoutCapabilities

    # It asks a binary that tells no version so; ours tells one.
    command = (str(EXECUTABLE), "--config", 'model="m"', "app-server")
    capabilities = CheckoutCapabilities(command, str(tmp_path), environment_without())
    assert capabilities.fields["turn/start"] >= {"threadId", "outputSchema", "mcpMetaByServer"}
    assert capabilities.fields["thread/resume"] >= {"threadId", "history"}
    assert capabilities.fields["thread/fork"] >= {"threadId", "beforeTurnId"}

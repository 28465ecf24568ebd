"""Runs the samples of docs/editors.md in the editors themselves, on machines without a screen.

python -m tests.interop.editors [--nvim PATH] [--emacs PATH] [--jupyter PYTHON] [--acpx PATH]
    [--code-server PATH] [--vsix FILE] [--acp-client FILE] [--acp-nvim DIR] [--acp-el DIR]
    [--elsewhere]

Neovim and Emacs load the sample beside this file and ask a question, and then one whose answer
needs a command that the user allows. So does code-server, which is VS Code in a browser: with its
own Codex agent, with the sample extension (`--vsix` names what `npm run package` makes in the
folder `typescript`), and with the extension "ACP Client" (`--acp-client` names its file). PYTHON
has nbclient, ipykernel and openai-codex, and runs the cells of the page. acpx, acp.nvim (a plugin
for Neovim) and acp.el (a package for Emacs, both in a folder DIR) are clients of the Agent Client
Protocol, and start `app-server acp`; ACP Client starts `codex-acp`, which must be on PATH, and that
starts this server. With `--elsewhere`, which needs PostgreSQL, editors speak with a node that owns
none of their threads, over a program in the server's place or over its URL; Jupyter and what starts
`app-server acp` are left out. An editor that is not found is left out.
Prints a line a check, `ok` or `FAIL`, and exits with 1 if there was a failure, with 2 where no
editor was found. Not part of the tests, which need no editor.
Source: docs/editors.md.
"""

import argparse
import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from tests.interop.editors.vscode import PROFILES, acp_client, codex_chat, sample_extension
from tests.interop.elsewhere import Program, elsewhere, own_program, program_elsewhere
from tests.long.real_servers import Report
from tests.support.harness import environment_without, write_config
from tests.support.model import ScriptedModel, calls, says

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "editors.md"
ANSWER_S = 120.0
QUESTION = 'What is "ä"?'
ANSWER = ("A letter ", "of German:\n", "ä.")

WAIT_IN_LUA = "lua vim.wait(60000, function() return vim.b.app_server_done end)"

WAIT_IN_LISP = """
(let ((process (app-server-ask {question})))
  (while (process-live-p process) (accept-process-output process 1))
  (princ (with-current-buffer (process-buffer process) (buffer-string))))"""

RUN_CELLS = """
import sys, nbclient, nbformat
cells = [nbformat.v4.new_code_cell(text) for text in sys.argv[1:]]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=60).execute()
print(*(output["text"] for cell in cells for output in cell["outputs"]), sep="")"""


def main() -> int:
    """Run the program; returns its exit status."""
    parser = argparse.ArgumentParser(prog="tests.interop.editors")
    for name, program in (("nvim", "nvim"), ("emacs", "emacs"), ("jupyter", ""), ("acpx", "acpx")):
        parser.add_argument(f"--{name}", default=shutil.which(program), metavar="PATH")
    parser.add_argument("--code-server", default=shutil.which("code-server"), metavar="PATH")
    parser.add_argument("--vsix", metavar="FILE")
    parser.add_argument("--acp-client", metavar="FILE")
    parser.add_argument("--acp-nvim", metavar="DIR")
    parser.add_argument("--acp-el", metavar="DIR")
    parser.add_argument("--elsewhere", action="store_true")
    options = parser.parse_args()
    if not any(value for value in vars(options).values() if value is not True):
        print("no editor was found", file=sys.stderr)
        return 2
    return asyncio.run(_check_all(options))


async def _check_all(options: argparse.Namespace) -> int:
    report, program = Report(), program_elsewhere if options.elsewhere else own_program
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if options.nvim:
            with report.check("Neovim asks, and shows the answer"):
                assert await _in_neovim(program, options.nvim, work / "n1") == _shown("completed")
            with report.check("Neovim asks the user about a command"):
                assert await _in_neovim(program, options.nvim, work / "n2", allows=True) == _shown(
                    "completed"
                )
                assert (work / "n2" / "made").exists()
        if options.nvim and options.acp_nvim and not options.elsewhere:
            with report.check("acp.nvim asks, asks about a command, and shows the answer"):
                shown = await _in_acp_nvim(options.nvim, options.acp_nvim, work / "n3")
                assert shown == "".join(ANSWER)
                assert (work / "n3" / "made").exists()
        if options.emacs:
            with report.check("Emacs asks, and shows the answer"):
                assert await _in_emacs(program, options.emacs, work / "e1") == _shown("completed")
            with report.check("Emacs asks the user about a command"):
                assert await _in_emacs(program, options.emacs, work / "e2", allows=True) == _shown(
                    "completed"
                )
                assert (work / "e2" / "made").exists()
        if options.emacs and options.acp_el and not options.elsewhere:
            with report.check("acp.el asks, allows a command, and prints the answer"):
                shown = await _in_acp_el(options.emacs, options.acp_el, work / "e3")
                assert shown == "".join(ANSWER), shown
                assert (work / "e3" / "made").exists()
        if options.code_server and options.vsix:
            with report.check("VS Code asks, shows the answer, and asks the user about a command"):
                shown = await _in_sample_extension(
                    options.code_server, options.vsix, work / "v", is_elsewhere=options.elsewhere
                )
                assert shown == f"> {QUESTION}\n{_shown('completed')}"
                assert (work / "v" / "made").exists()
        if options.code_server:
            with report.check("the Codex agent of VS Code asks, and asks the user about a command"):
                assert await _in_codex_chat(program, options.code_server, work / "c") == "".join(
                    ANSWER
                )
                assert (work / "c" / "made").exists()
        if options.code_server and options.acp_client:
            with report.check("ACP Client asks, shows the answer, and asks about a command"):
                shown = await _in_acp_client(
                    program, options.code_server, options.acp_client, work / "p"
                )
                assert shown == "".join(ANSWER)
                assert (work / "p" / "made").exists()
        if options.jupyter and not options.elsewhere:
            with report.check("the cells of a notebook ask, and print the answer"):
                assert await _in_jupyter(options.jupyter, work / "j") == "".join(ANSWER)
        if options.acpx and not options.elsewhere:
            with report.check("a client of the Agent Client Protocol asks, and prints the answer"):
                assert "".join(ANSWER) in await _in_acpx(options.acpx, work / "a")
    return 1 if report.failures else 0


def _shown(status: str) -> str:
    return f"{''.join(ANSWER)}\n[{status}]"


async def _in_neovim(server: Program, program: str, work: Path, *, allows: bool = False) -> str:
    words = [program, "--headless", "-u", "NONE", "-i", "NONE", "-S", str(HERE / "ask.lua")]
    if allows:
        words += ["-c", "lua vim.fn.confirm = function() return 1 end"]
    words += ["-c", f"AppServerAsk {QUESTION}", "-c", WAIT_IN_LUA, "-c", "w! shown", "-c", "qa!"]
    await _run(words, work, server, allows=allows)
    return (work / "shown").read_text().rstrip("\n")


async def _in_acp_nvim(program: str, plugin: str, work: Path) -> str:
    words = [program, "--headless", "--clean", "--cmd", f"set runtimepath+={plugin}"]
    words += ["-S", str(HERE / "acp_chat.lua"), "-c", f"AcpChat {QUESTION}"]
    words += ["-c", "call writefile(getline(1, '$'), 'shown')", "-c", "qa!"]
    await _run(words, work, own_program, allows=True)
    answer = (work / "shown").read_text().split("[Permission granted: Yes, proceed]\n")[1]
    # The prompt is a mark for terminals.
    return answer.split("\n\x1b")[0]


async def _in_acp_el(program: str, package: str, work: Path) -> str:
    words = [program, "-Q", "--batch", "-L", package, "-l", str(HERE / "acp_ask.el")]
    asked = QUESTION.replace('"', '\\"')
    words += ["--eval", f'(acp-ask "app-server" (list "acp") "{asked}")']
    return (await _run(words, work, own_program, allows=True)).rstrip("\n")


async def _in_emacs(server: Program, program: str, work: Path, *, allows: bool = False) -> str:
    question = '"' + QUESTION.replace('"', '\\"') + '"'
    words = [program, "-Q", "--batch", "-l", str(HERE / "ask.el")]
    words += ["--eval", WAIT_IN_LISP.format(question=question)]
    output = await _run(words, work, server, allows=allows, said="y\n")
    return output[output.index(ANSWER[0]) :].rstrip("\n")


async def _in_sample_extension(
    program: str, extension: str, work: Path, *, is_elsewhere: bool
) -> str:
    work.mkdir()
    async with (
        _model(work / "home", allowed=work / "made"),
        sample_extension(program, extension, work, elsewhere if is_elsewhere else None) as window,
    ):
        await window.ask(QUESTION)
        await window.allow("touch")
        return await window.shows("[completed]")


async def _in_codex_chat(server: Program, program: str, work: Path) -> str:
    work.mkdir()
    async with (
        _model(work / "home", PROFILES, allowed=work / "made") as model,
        server(work / "home") as started,
        codex_chat(program, started, work) as chat,
    ):
        # A question of the server in the first moments of a session is not always shown.
        model.scripts.insert(0, says("Hello."))
        await chat.ask("Hello?")
        await chat.shows("Hello.")
        await chat.ask(QUESTION)
        await chat.allow()
        return await chat.shows(ANSWER[-1])


async def _in_acp_client(server: Program, program: str, extension: str, work: Path) -> str:
    work.mkdir()
    async with (
        _model(work / "home", allowed=work / "made"),
        server(work / "home") as started,
        acp_client(program, started, extension, work) as chat,
    ):
        # In the mode that a session starts with, a reviewer is asked and not the user.
        await chat.choose_mode("Workspace access")
        await chat.ask(QUESTION)
        await chat.allow()
        return await chat.shows(ANSWER[-1])


async def _in_jupyter(python: str, work: Path) -> str:
    section = PAGE.read_text().split("\n## Jupyter\n")[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    cells = [cell for cell in block[1].split("# Next cell\n") if cell.strip()]
    return (await _run([python, "-c", RUN_CELLS, *cells], work, own_program)).rstrip("\n")


async def _in_acpx(program: str, work: Path) -> str:
    words = [program, "--agent", "app-server acp", "--timeout", "60"]
    variables = {"HOME": str(work)}
    return await _run([*words, "exec", QUESTION], work, own_program, variables=variables)


async def _run(
    words: Sequence[str],
    work: Path,
    program: Program,
    *,
    allows: bool = False,
    said: str = "",
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run a program beside a model that answers, after a command if the user `allows` it."""
    work.mkdir()
    home = work / "home"
    async with (
        _model(home, allowed=work / "made" if allows else None),
        program(home) as server,
    ):
        process = await asyncio.create_subprocess_exec(
            *words,
            env=environment_without("OPENAI_API_KEY", "CODEX_API_KEY")
            | {"APP_SERVER_HOME": str(home), "CODEX_HOME": str(home), "CODEX_PATH": str(server)}
            | {"PATH": f"{server.parent}{os.pathsep}{os.environ['PATH']}"}
            | dict(variables or {}),
            cwd=work,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        with anyio.fail_after(ANSWER_S):
            output, _ = await process.communicate(said.encode())
    return output.decode()


@asynccontextmanager
async def _model(
    home: Path, tables: str = "", *, allowed: Path | None = None
) -> AsyncIterator[ScriptedModel]:
    """Serve a model that answers, after making the file `allowed`, and set `home` up for it."""
    async with ScriptedModel().serve() as model:
        window = "model_context_window = 100000\n"
        write_config(home, model.url, f'approval_policy = "untrusted"\n{window}{tables}')
        if allowed is not None:
            model.scripts.append(calls(_touch(allowed)))
        model.scripts.append(says(*ANSWER))
        yield model


def _touch(path: Path) -> dict[str, object]:
    outside = {
        "sandbox_permissions": "require_escalated",
        "justification": "It is not in the folder",
    }
    return {"name": "exec_command", "arguments": {"cmd": f"touch {path}", **outside}}


if __name__ == "__main__":
    sys.exit(main())

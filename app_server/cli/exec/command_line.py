"""From the command line of `app-server exec`, stdin and a schema to the request of a run.

Source: docs/exec.md; openai/codex, sdk/typescript (`exec.ts`), whose command lines it takes.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app_server.clients.chosen_server import URL_VARIABLE
from app_server.clients.command_line import add_folder, command_parser
from app_server.clients.exec.run import ExecRequest, Opening
from app_server.config.config_toml import parse_override
from app_server.observability.log import add_log_options
from app_server.peer.token_file import TOKEN_FILE_HELP
from app_server.runtime.standard_streams import print_to_stderr
from protocol.model import Json, JsonObject

PROGRAM = "app-server exec"
MAX_STDIN_BYTES = 16 * 1024 * 1024
MAX_SCHEMA_BYTES = 1024 * 1024

COMMANDS = ("resume", "fork", "review")
SANDBOXES = ("read-only", "workspace-write", "danger-full-access")

DESCRIPTION = """\
Run one turn of an agent, and end with it: for scripts, CI, and the SDK of Codex for TypeScript.
The last message goes to stdout, progress to stderr; with --json every event goes to stdout."""

USAGE = """\
app-server exec [options] [PROMPT]
       app-server exec resume [options] [THREAD | --last] [PROMPT]
       app-server exec fork [options] THREAD [PROMPT]
       app-server exec review [options] (--uncommitted | --base BRANCH | --commit SHA | PROMPT)"""

EPILOG = f"""\
examples:
  app-server exec "Find out why the tests fail."
  git diff | app-server exec "Describe this change in one sentence."
                                        what is piped in stands behind the prompt, as <stdin>
  app-server exec --sandbox workspace-write --json - < prompt.txt
  app-server exec resume --last "Now mend it."
  app-server exec --output-schema answer.json -o answer.txt "How many tests are there?"
  app-server exec --attach "Go on."     in the server that runs with the home folder

Nobody is asked: what needs an approval is refused to the model (approval_policy never, unless -c
sets another one; then other clients of the server may answer). With --url, --attach or
{URL_VARIABLE} a server that runs is used, and its threads go on there after this command; otherwise
a server of its own runs for the turn, with the threads of the home folder.

The exit status is 0 if the turn was completed, 1 if it failed or could not begin, 2 for a wrong
call, and 130 or 143 if it was interrupted by Ctrl-C or SIGTERM. exec-server is another command: it
runs processes for a server elsewhere."""

REFUSED: Mapping[str, str] = {
    "--approve-for-me": "set `-c approval_policy=on-request -c approvals_reviewer=auto_review "
    "--sandbox workspace-write`, which says the same",
    "--cyber-access-program": "this server asks for no such program",
    "--dangerously-bypass-hook-trust": "hooks run once a client has trusted them (docs/hooks.md)",
    "--full-auto": "say `--sandbox workspace-write`",
    "--ignore-rules": "the user's rules always hold (docs/tools.md)",
    "--ignore-user-config": "name another home folder with --home",
    "--local-provider": "name a provider with `-c model_provider=NAME`",
    "--oss": "name a provider with `-c model_provider=NAME`",
    "--trust": 'write [projects."FOLDER"] trust_level = "trusted" into config.toml',
    "--worktree": "make one with `git worktree add`, and name it with --cd",
}
"""Options of `codex exec` that are not served, and what to do instead."""

OF_COMMANDS: Mapping[str, Sequence[str]] = {
    "all": ("resume",),
    "base": ("review",),
    "commit": ("review",),
    "ephemeral": ("", "fork", "review"),
    "image": ("", "fork", "resume"),
    "last": ("resume",),
    "output-schema": ("", "fork", "resume"),
    "thread-source": ("", "fork", "review"),
    "title": ("review",),
    "uncommitted": ("review",),
}
"""Options that not every command takes, and the commands that do; the empty one is none."""


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser(PROGRAM, DESCRIPTION, EPILOG, usage=USAGE, allow_abbrev=False)
    parser.add_argument("words", nargs="*", metavar="PROMPT", help=argparse.SUPPRESS)
    parser.add_argument(
        "--json",
        "--experimental-json",
        action="store_true",
        help="write the events of the turn to stdout, as one JSON object a line (docs/exec.md)",
    )
    parser.add_argument(
        "-o",
        "--output-last-message",
        type=Path,
        metavar="FILE",
        help="write the last message to this file",
    )
    parser.add_argument(
        "--output-schema",
        type=Path,
        metavar="FILE",
        help="a JSON Schema that the last message has to satisfy",
    )
    parser.add_argument(
        "-i",
        "--image",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="images for the prompt; `--` ends the list",
    )
    parser.add_argument("--color", choices=("auto", "never"), help="progress has no colors")
    _add_thread_options(parser)
    _add_settings(parser)
    _add_server(parser)
    add_log_options(parser)
    for flag in REFUSED:
        parser.add_argument(flag, nargs="?", const="", help=argparse.SUPPRESS)
    return parser


def _add_thread_options(parser: argparse.ArgumentParser) -> None:
    threads = parser.add_argument_group("the thread")
    threads.add_argument("--last", action="store_true", help="resume: the last thread of --cd")
    threads.add_argument("--all", action="store_true", help="resume: of any folder")
    threads.add_argument("--ephemeral", action="store_true", help="keep the thread in memory only")
    threads.add_argument("--thread-source", metavar="WORD", help="what the new thread is for")
    threads.add_argument("--uncommitted", action="store_true", help="review: what is not committed")
    threads.add_argument("--base", metavar="BRANCH", help="review: changes against a branch")
    threads.add_argument("--commit", metavar="SHA", help="review: a commit")
    threads.add_argument("--title", metavar="TITLE", help="review: title of --commit")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    settings = parser.add_argument_group("settings; what is left out is as in config.toml")
    add_folder(parser, "-C", "--cd")
    settings.add_argument(
        "--skip-git-repo-check",
        action="store_true",
        help="also work in a folder that is in no Git repository",
    )
    settings.add_argument(
        "--add-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="another folder that may be written, with --sandbox workspace-write; may be repeated",
    )
    settings.add_argument("-m", "--model", metavar="NAME", help="the model")
    settings.add_argument("-s", "--sandbox", choices=SANDBOXES, help="what may be written")
    settings.add_argument(
        "--dangerously-bypass-approvals-and-sandbox",
        dest="bypass",
        action="store_true",
        help="run commands without a sandbox and without a question; for machines that are one",
    )
    settings.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting of config.toml; KEY may be a dotted path, VALUE is TOML or a "
        "plain string; may be repeated",
    )
    settings.add_argument(
        "--enable", action="append", default=[], metavar="NAME", help="set features.NAME"
    )
    settings.add_argument(
        "--disable", action="append", default=[], metavar="NAME", help="unset features.NAME"
    )
    settings.add_argument("-p", "--profile", metavar="NAME", help="put NAME.config.toml over it")
    settings.add_argument(
        "--strict-config", action="store_true", help="refuse settings that nothing reads"
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    servers = parser.add_argument_group("the server; without these options, one of its own")
    servers.add_argument("--url", help="use the server at this address")
    servers.add_argument(
        "--attach", action="store_true", help="use the server that runs with the home folder"
    )
    servers.add_argument(
        "--home", metavar="DIR", help="the home folder (default: the one that the server uses)"
    )
    servers.add_argument("--token-file", type=Path, metavar="FILE", help=TOKEN_FILE_HELP)


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line whose words stand among its options; behind `--` there are only words.

    Raises:
        SystemExit: it is wrong, or asks for help.
    """
    own = list(arguments)
    cut = own.index("--") if "--" in own else len(own)
    options = parser.parse_intermixed_args(own[:cut])
    options.words += own[cut + 1 :]
    return options


@dataclass(frozen=True, slots=True)
class Call:
    """The words of the command line that are no options."""

    command: Literal["", "resume", "fork", "review"] = ""
    thread: str | None = None
    prompt: str | None = None


def read_call(options: argparse.Namespace) -> Call:
    """Read the words, and check what belongs together.

    Raises:
        ValueError: with a sentence that says what would be accepted.
    """
    for flag, instead in REFUSED.items():
        if getattr(options, flag.removeprefix("--").replace("-", "_")) is not None:
            raise ValueError(f"{flag} is not served: {instead}")
    words = list(options.words)
    command: Any = words.pop(0) if words[:1] and words[0] in COMMANDS else ""
    for flag, allowed in OF_COMMANDS.items():
        if getattr(options, flag.replace("-", "_")) and command not in allowed:
            where = " and ".join(one or "new threads" for one in allowed)
            raise ValueError(f"--{flag} is for {where}")
    thread = None
    if command == "fork" or (command == "resume" and not options.last):
        if not words:
            raise ValueError(f"{command} needs the id or the name of a thread, or --last")
        thread = words.pop(0)
    if len(words) > 1:
        raise ValueError(f"one prompt is one word of the command line: quote it ({words[1]!r})")
    if command == "review":
        targets = [options.uncommitted, options.base, options.commit, *words]
        if sum(map(bool, targets)) != 1:
            raise ValueError("review needs one of --uncommitted, --base, --commit and a prompt")
    if options.bypass and options.sandbox is not None:
        raise ValueError("--dangerously-bypass-approvals-and-sandbox goes without --sandbox")
    return Call(command, thread, words[0] if words else None)


def read_overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Read the settings of the command line.

    Raises:
        ConfigError
    """
    overrides = dict(parse_override(text) for text in options.config)
    overrides |= {f"features.{name}": True for name in options.enable}
    return overrides | {f"features.{name}": False for name in options.disable}


def is_in_repository(folder: Path) -> bool:
    """Whether a folder is in a Git repository."""
    return any((place / ".git").exists() for place in (folder, *folder.parents))


def make_request(
    options: argparse.Namespace, call: Call, overrides: Mapping[str, Any], folder: Path
) -> ExecRequest:
    """Make the request of a command line; reads stdin and the schema.

    Raises:
        ValueError: there is no prompt, or the schema is none.
        OSError: the schema cannot be read.
    """
    opening = _opening(options, call, overrides, folder)
    if call.command == "review":
        return ExecRequest(
            opening=opening,
            method="review/start",
            params={"target": _review_target(options, call.prompt), "delivery": "inline"},
        )
    schema = None if options.output_schema is None else read_schema(options.output_schema)
    images: list[Json] = [
        {"type": "localImage", "path": str(folder / image)} for image in options.image
    ]
    text = {"type": "text", "text": read_prompt(call.prompt)}
    params: JsonObject = {"input": [*images, text]}
    if schema is not None:
        params["outputSchema"] = schema
    effort = overrides.get("model_reasoning_effort")
    if isinstance(effort, str):
        params["effort"] = effort
    return ExecRequest(opening=opening, params=params)


def _opening(
    options: argparse.Namespace, call: Call, overrides: Mapping[str, Any], folder: Path
) -> Opening:
    settings: JsonObject = {
        "cwd": str(folder),
        "approvalPolicy": "never" if options.bypass else overrides.get("approval_policy", "never"),
    }
    optional: JsonObject = {
        "model": options.model,
        "sandbox": "danger-full-access" if options.bypass else options.sandbox,
        "config": dict(overrides) or None,
        "profile": options.profile,
        "threadSource": options.thread_source,
        "approvalsReviewer": overrides.get("approvals_reviewer"),
        "runtimeWorkspaceRoots": [str(folder), *(str(folder / one) for one in options.add_dir)]
        if options.add_dir
        else None,
    }
    if call.command != "resume":
        optional["ephemeral"] = options.ephemeral or None
    settings |= {name: value for name, value in optional.items() if value is not None}
    match call.command:
        case "resume":
            near = None if options.all or call.thread is not None else str(folder)
            return Opening(
                method="thread/resume", settings=settings, thread=call.thread, folder=near
            )
        case "fork":
            return Opening(method="thread/fork", settings=settings, thread=call.thread)
    return Opening(method="thread/start", settings=settings)


def _review_target(options: argparse.Namespace, prompt: str | None) -> JsonObject:
    if options.uncommitted:
        return {"type": "uncommittedChanges"}
    if options.base is not None:
        return {"type": "baseBranch", "branch": options.base}
    if options.commit is not None:
        return {"type": "commit", "sha": options.commit, "title": options.title}
    return {"type": "custom", "instructions": read_prompt(prompt)}


def read_schema(file: Path) -> Json:
    """Read a JSON Schema.

    Raises:
        ValueError: it is none.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        content = opened.read(MAX_SCHEMA_BYTES + 1)
    if len(content) > MAX_SCHEMA_BYTES:
        raise ValueError(f"--output-schema {file}: a schema has at most {MAX_SCHEMA_BYTES} bytes")
    try:
        schema: Json = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"--output-schema {file}: that is no JSON") from None
    if not isinstance(schema, dict):
        raise ValueError(f"--output-schema {file}: a schema is a JSON object")
    return schema


def read_prompt(given: str | None) -> str:
    """Return the prompt: the word, and what is piped in; blocks until that has ended.

    Raises:
        ValueError: there is none, or it is no text.
    """
    is_terminal = sys.stdin is None or sys.stdin.isatty()
    if given is not None and given != "-":
        piped = "" if is_terminal else _stdin()
        return f"{given}\n\n<stdin>\n{piped.rstrip(chr(10))}\n</stdin>" if piped.strip() else given
    if sys.stdin is not None and is_terminal:
        print_to_stderr("reading the prompt from the terminal, up to Ctrl-D")
    text = "" if sys.stdin is None else _stdin()
    if not text.strip():
        raise ValueError("there is no prompt: write it behind the options, or to stdin")
    return text


def _stdin() -> str:
    content = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(content) > MAX_STDIN_BYTES:
        raise ValueError(f"stdin has more than {MAX_STDIN_BYTES} bytes")
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise ValueError("stdin is no text in UTF-8") from None

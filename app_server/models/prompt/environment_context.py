"""Environment context for a model: instructions of the project, permissions, facts.

Each kind is one message of the history, and begins with a tag of its own. It is shown again once it
is another one. No I/O.
Source: docs/wire.md, "What the model is sent".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from app_server.models.prompt.request import message, only_text
from app_server.models.proposed_plan import PLAN_CLOSING, PLAN_OPENING
from app_server.permissions.sandbox.policy import has_network
from protocol.log.rollout import LOCAL, Settings, WorkingFolder
from protocol.model import JsonObject
from protocol.turns.policy import (
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
)

INSTRUCTIONS = "project_instructions"
PERMISSIONS = "permissions"
MODE = "collaboration_mode"
FACTS = "environment_context"
SKILLS = "skills"
KINDS = (INSTRUCTIONS, SKILLS, PERMISSIONS, MODE, FACTS)

REPLACES = "These instructions replace all project instructions that were given before."
NO_SKILLS = "There are no skills any more."
NO_LONGER = "The project instructions that were given before no longer apply."


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """Environment context of a thread."""

    settings: Settings
    instructions: str | None
    """The text of the project's and the user's files of instructions."""
    skills: str | None
    """The skills that there are."""
    shell: str
    """The name of the user's shell."""
    date: str
    """Of the user's calendar: `2026-11-22`."""
    timezone: str | None
    """As the database of time zones names it, if that is known."""
    shells: Mapping[str, str] = field(default_factory=dict)
    """By environment, those of other machines that can be reached."""
    has_proxy: bool = False
    """Whether commands that have a network have it through the proxy."""


class KnownContext:
    """The newest message of each kind in a history; only what was added is read."""

    def __init__(self) -> None:
        self._history: Sequence[JsonObject] = ()
        self._count = 0
        self._newest: dict[str, JsonObject] = {}

    def look(
        self, history: Sequence[JsonObject], waiting: Iterable[JsonObject] = ()
    ) -> dict[str, JsonObject]:
        """Return the newest message of each kind; `waiting` comes behind the history."""
        if history is not self._history or len(history) < self._count:
            self._history, self._count, self._newest = history, 0, {}
        for item in islice(history, self._count, None):
            if (kind := kind_of(item)) is not None:
                self._newest[kind] = item
        self._count = len(history)
        of_waiting = {kind: item for item in waiting if (kind := kind_of(item)) is not None}
        return {**self._newest, **of_waiting}


def news(context: EnvironmentContext, known: Mapping[str, JsonObject]) -> list[JsonObject]:
    """Make the messages for a model about what it does not know yet of where it works.

    `known` is the newest message of each kind that the model has seen.
    """
    messages: list[JsonObject] = []
    before = known.get(INSTRUCTIONS)
    after = _instructions(context, before)
    if after is not None and (before is None or _body(after) != _body(only_text(before))):
        messages.append(message("user", after))
    skills = context.skills or (NO_SKILLS if SKILLS in known else None)
    shown = {
        SKILLS: None if skills is None else message("developer", _framed(SKILLS, skills)),
        PERMISSIONS: _permissions(context),
        MODE: _mode(context.settings, known.get(MODE)),
        FACTS: message("user", _facts(context)),
    }
    for kind, item in shown.items():
        if item is not None and known.get(kind) != item:
            messages.append(item)
    return messages


def newest_of_each(history: Sequence[JsonObject]) -> Iterator[tuple[str, JsonObject]]:
    """Give the newest message of each kind that a history has."""
    missing = set(KINDS)
    for item in reversed(history):
        kind = kind_of(item)
        if kind in missing:
            missing.remove(kind)
            yield kind, item
            if not missing:
                return


def kind_of(item: JsonObject) -> str | None:
    """Say what an item shows of the environment; None if it is any other item."""
    if item.get("role") not in ("user", "developer"):
        return None
    text = only_text(item)
    if not text.startswith("<"):
        return None
    return next((kind for kind in KINDS if text.startswith((f"<{kind}>", f"<{kind} "))), None)


def _framed(kind: str, text: str, members: str = "") -> str:
    closed = text.replace(f"</{kind}", f"<\\/{kind}")
    return f"<{kind}{members}>\n{closed}\n</{kind}>"


def _instructions(context: EnvironmentContext, before: JsonObject | None) -> str | None:
    text = context.instructions
    if text is None:
        is_shown = before is not None and NO_LONGER not in only_text(before)
        return _framed(INSTRUCTIONS, NO_LONGER) if is_shown else None
    settings = context.settings
    where = next((folder.cwd for folder in settings.working_folders), settings.cwd)
    folder = _escaped(where).replace('"', "&quot;")
    note = "" if before is None else f"{REPLACES}\n\n"
    return _framed(INSTRUCTIONS, f"{note}{text}", f' folder="{folder}"')


def _body(text: str) -> str:
    return text.partition("\n")[2].removeprefix(f"{REPLACES}\n\n")


def _permissions(context: EnvironmentContext) -> JsonObject | None:
    settings = context.settings
    if not settings.working_folders:
        return None
    profile = settings.profile_in_force
    has_proxy = context.has_proxy or (profile is not None and profile.proxied is not None)
    lines = [
        _sandbox(settings.sandbox_policy, settings.working_folders[0].roots),
        _network(settings.sandbox_policy, has_proxy=has_proxy),
        _approvals(settings.approval_policy, settings.sandbox_policy),
    ]
    return message("developer", _framed(PERMISSIONS, "\n".join(lines)))


def _sandbox(policy: SandboxPolicy, roots: Sequence[str]) -> str:
    match policy:
        case DangerFullAccessSandboxPolicy():
            return "Sandbox: `danger-full-access`. Commands and patches are not confined."
        case ExternalSandboxPolicy():
            return (
                "Sandbox: `external-sandbox`. Commands and patches are confined by what this "
                "server runs in, and not by the server."
            )
        case ReadOnlySandboxPolicy():
            return (
                "Sandbox: `read-only`. Commands may read files; they can create, change and "
                "delete none."
            )
    places = [*roots, *(root for root in policy.writable_roots if root not in roots)]
    if not policy.exclude_slash_tmp:
        places.append("/tmp")  # noqa: S108 - named to the model
    if not policy.exclude_tmpdir_env_var:
        places.append("$TMPDIR")
    named = ", ".join(f"`{place}`" for place in places) or "no folder"
    return (
        "Sandbox: `workspace-write`. Commands may read files everywhere, and write in: "
        f"{named}. Inside of these, `.git`, `.codex` and `.agents` stay read-only."
    )


def _network(policy: SandboxPolicy, *, has_proxy: bool) -> str:
    is_restricted = not isinstance(policy, DangerFullAccessSandboxPolicy | ExternalSandboxPolicy)
    if has_proxy and is_restricted and has_network(policy):
        return PROXIED
    return f"Network: {'on' if has_network(policy) else 'off'}."


PROXIED = """\
Network: on, through the proxy that `HTTP_PROXY` and `ALL_PROXY` name; what does not use it \
reaches nothing. The user may be asked about a host, and hosts can be refused: do not look for \
ways around that."""

ESCALATION = """\
A command that the sandbox would stop can be asked for: call `exec_command` with \
`sandbox_permissions` set to `require_escalated` and a short question in `justification`, which \
the user reads. Do so when the work needs it, also after a command failed because of the sandbox \
or the network; do not ask in a message first. With `prefix_rule` you may propose the beginning \
of the command as a rule that is remembered; keep it narrow, and never propose one for commands \
that delete or overwrite."""


def _approvals(policy: AskForApproval, sandbox: SandboxPolicy) -> str:
    match policy:
        case "never":
            return (
                "Approvals: `never`. Nobody is asked, so do not set `sandbox_permissions`: such "
                "calls are refused. Work within what is permitted."
            )
        case "untrusted":
            return (
                "Approvals: `untrusted`. The user is asked about every command that is not known "
                "to only read, and that no rule allows."
            )
        case GranularAskForApproval():
            asked = policy.granular.model_dump(mode="json")
            kinds = ", ".join(f"`{kind}`" for kind, is_asked in asked.items() if is_asked)
            start = f"Approvals: `granular`. The user is asked about: {kinds or 'nothing'}."
        case _:
            start = "Approvals: `on-request`. The user is asked when you ask for more rights."
    confined = not isinstance(sandbox, DangerFullAccessSandboxPolicy)
    return f"{start}\n{ESCALATION}" if confined else start


PLAN_MODE = f"""\
Plan mode: the user wants a plan, and nothing carried out yet. It lasts until a message like this \
one says otherwise; a request to do the work is a request to plan it.

- Find out what can be found out: read files, search, run commands that change nothing. Nothing \
can be written: commands run in a read-only sandbox, and patches are refused.
- Ask only what the code and the user's words leave open and what changes the plan. Use \
`request_user_input` for that, with the answer that you would choose first.
- When nothing is left open, propose the plan: put it between the lines `{PLAN_OPENING}` and \
`{PLAN_CLOSING}`, each alone on its line, in Markdown. The plan alone must be enough for somebody \
who has not read this conversation: what changes and where, in which order, which decisions were \
made, how it is checked. Propose it once, whole; after a change propose it whole again.
- Do not ask whether to go on: the user sees the plan and decides."""

DEFAULT_MODE = "The default mode: what was said before of another mode no longer applies."


def _mode(settings: Settings, before: JsonObject | None) -> JsonObject | None:
    text = settings.mode_instructions or (PLAN_MODE if settings.mode == "plan" else None)
    if text is None:
        if before is None:
            return None
        text = DEFAULT_MODE
    return message("developer", f"<{MODE}>{text}</{MODE}>")


def _facts(context: EnvironmentContext) -> str:
    settings = context.settings
    lines: list[str] = []
    if settings.environments is not None:
        lines += _environments(context)
    elif settings.working_folders:
        lines += _folder(settings.working_folders[0], context.shell, "  ")
    lines.append(f"  <current_date>{_escaped(context.date)}</current_date>")
    if context.timezone is not None:
        lines.append(f"  <timezone>{_escaped(context.timezone)}</timezone>")
    return _framed(FACTS, "\n".join(lines))


def _environments(context: EnvironmentContext) -> Iterator[str]:
    shells = {LOCAL: context.shell, **context.shells}
    yield "  <environments>"
    for number, folder in enumerate(context.settings.working_folders):
        shell = shells.get(folder.environment_id)
        name = _escaped(folder.environment_id).replace('"', "&quot;")
        primary = "true" if number == 0 else "false"
        status = "" if shell is not None else ' status="unavailable"'
        yield f'    <environment id="{name}" primary="{primary}"{status}>'
        yield from _folder(folder, shell, "      ")
        yield "    </environment>"
    yield "  </environments>"


def _folder(folder: WorkingFolder, shell: str | None, indent: str) -> Iterator[str]:
    members = [("cwd", folder.cwd)]
    if folder.roots != [folder.cwd]:
        members.append(("workspace_roots", ", ".join(folder.roots) or "none"))
    if shell is not None:
        members.append(("shell", shell))
    for name, value in members:
        yield f"{indent}<{name}>{_escaped(value)}</{name}>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

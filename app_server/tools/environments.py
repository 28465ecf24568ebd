"""In which environment a tool works, in which folder there, and what confines it.

Source: docs/environments.md, "Threads in an environment"; docs/tools.md, "Sandbox".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from app_server.host.environments import UnknownEnvironment
from app_server.host.exec.client.process import read_beginning
from app_server.permissions.grants import Grant
from app_server.permissions.sandbox.policy import (
    EffectivePolicy,
    effective_policy_of,
    through_proxy,
)
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from protocol.exec.processes import ExecGrant, WorkPolicy
from protocol.log.rollout import LOCAL, WorkingFolder
from protocol.model import JsonObject
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

NONE_CHOSEN = "this thread has no environment"


class NoEnvironment(Exception):
    """A tool cannot work in an environment; the text is for the model."""


class EnvironmentNotKnown(NoEnvironment):
    """It was not added, or not chosen for the thread."""


@dataclass(frozen=True, slots=True)
class FoundEnvironment:
    """Working folder and shell of a tool."""

    folder: WorkingFolder
    shell: str | None = None
    """The path of the user's shell there; None on this machine."""

    @property
    def id(self) -> str:
        """The environment."""
        return self.folder.environment_id

    @property
    def is_here(self) -> bool:
        """Whether it is this machine."""
        return self.id == LOCAL


@dataclass(frozen=True, slots=True)
class TurnEnvironments:
    """The environments of one turn; the settings in force may change while it runs."""

    context: ThreadContext
    turn: RunningTurn

    @property
    def names(self) -> list[str]:
        """The ids that a call can choose from, the one that is meant without a choice first.

        Empty if there is nothing to choose. Where nobody chose for the thread, it is all that are
        known.
        """
        settings = self.turn.settings
        if settings.environments is None and not settings.without_environment:
            ids = [LOCAL, *self.context.server.environments.elsewhere]
        else:
            ids = [one.environment_id for one in settings.working_folders]
        return ids if len(ids) > 1 else []

    async def find(self, named: str | None) -> FoundEnvironment:
        """Return where a call works that names an environment, or none; connects if need be.

        An environment that was not chosen for the thread has the working folder of its exec server.

        Raises:
            NoEnvironment: it is none of the thread's, which may have none at all, not known, or out
                of reach.
        """
        settings, machines = self.turn.settings, self.context.server.environments
        if not settings.working_folders:
            raise NoEnvironment(NONE_CHOSEN)
        environment_id = self._id_of(named)
        if environment_id == LOCAL:
            return FoundEnvironment(WorkingFolder(LOCAL, settings.cwd, settings.roots))
        if not machines.has(environment_id):
            raise EnvironmentNotKnown(f"unknown environment `{environment_id}`")
        try:
            shell, cwd = await machines.info(environment_id)
        except (OSError, UnknownEnvironment) as exc:
            raise NoEnvironment(f"environment `{environment_id}`: {exc}") from exc
        folder = settings.working_folder(environment_id)
        return FoundEnvironment(folder or WorkingFolder(environment_id, cwd, [cwd]), shell.path)

    def sandbox_policy(self, folder: WorkingFolder | None = None) -> EffectivePolicy:
        """Return what confines the turn on the machine of a folder now, as far as is known here.

        None is a folder of this machine. Links are not followed.
        """
        settings, environment_id = self.turn.settings, LOCAL
        if folder is not None and folder.environment_id != LOCAL:
            environment_id = folder.environment_id
            there = {
                "cwd": folder.cwd,
                "workspace_roots": folder.roots,
                "without_environment": None,
                "environments": None,
            }
            settings = settings.model_copy(update=there)
        confined = self.granted(environment_id).widened(
            effective_policy_of(settings, self.context.settings.machine_paths)
        )
        return through_proxy(confined, self.context.settings.network_proxy)

    def granted(self, environment_id: str) -> Grant:
        """Return what the user granted in an environment beyond the sandbox."""
        turn = self.turn
        if turn.settings.mode == "plan" or turn.recorder.has_own_history:
            # What was granted to carry work out is not there to plan or to review it.
            return Grant()
        return self.context.approvals.permissions.granted(turn.id, environment_id)

    def _id_of(self, named: str | None) -> str:
        settings = self.turn.settings
        if settings.environments is None:
            return LOCAL if named is None else named
        ids = [one.environment_id for one in settings.working_folders]
        if named is None:
            return ids[0]
        if named not in ids:
            known = ", ".join(f"`{one}`" for one in ids)
            raise EnvironmentNotKnown(f"unknown environment `{named}`; this thread has: {known}")
        return named


READ_S = 60.0
"""For a file to be read."""


def work_policy(environments: TurnEnvironments, found: FoundEnvironment) -> WorkPolicy:
    """Say what confines the turn on another machine.

    The proxy is of this machine: what has its network through it has none there.
    """
    sandbox_policy = environments.sandbox_policy(found.folder)
    grant = environments.granted(found.id)
    settings, network = environments.turn.settings, sandbox_policy.network
    profile = settings.profile_in_force
    if profile is not None:
        profile = profile.model_copy(update={"proxied": None, "network": network})
    return WorkPolicy(
        sandbox_policy=_policy_there(settings.sandbox_policy, sandbox_policy),
        permission_profile=profile,
        roots=found.folder.roots,
        folder=found.folder.cwd,
        granted=ExecGrant(
            read=list(grant.read), write=list(grant.write), network=grant.network and network
        ),
    )


async def read_elsewhere(
    environments: TurnEnvironments, found: FoundEnvironment, path: str, limit_bytes: int
) -> bytes:
    """Read the beginning of a file of another machine; `path` is absolute.

    Raises:
        OSError: it is not there, may not be read, or is not read in 60 s; or the machine is out of
            reach.
    """
    policy = work_policy(environments, found)
    opening = environments.context.server.environments.open_file(found.id, path, policy)
    try:
        with anyio.fail_after(READ_S):
            content, _ = await read_beginning(opening, limit_bytes)
    except TimeoutError as exc:
        raise OSError(f"it was not read in {READ_S:g} s") from exc
    return content


def _policy_there(policy: SandboxPolicy, sandbox_policy: EffectivePolicy) -> SandboxPolicy:
    match policy:
        case ReadOnlySandboxPolicy() | WorkspaceWriteSandboxPolicy():
            return policy.model_copy(update={"network_access": sandbox_policy.network})
        case _:
            # Somebody else's sandbox is around this machine alone; there nothing confines.
            return DangerFullAccessSandboxPolicy()


def environment_member(environments: Sequence[str]) -> JsonObject:
    """Describe the argument `environment_id`, with the ids that a call can choose from."""
    description = "The machine to work on, whose paths are meant; the first one if left out."
    return {"type": "string", "description": description, "enum": list(environments)}

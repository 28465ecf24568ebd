"""Which environments a client chose for a thread or a turn, and which folders there.

Source: docs/environments.md, "Threads in an environment".
"""

from collections.abc import Sequence

from app_server.handlers.services import Services
from app_server.sessions.settings import Overrides
from protocol.jsonrpc.errors import RpcError, invalid_member, invalid_request
from protocol.log.rollout import LOCAL, StoredEnvironment
from protocol.turns.turn import TurnEnvironmentParams

MAX_ROOTS = 100
"""Of one environment."""

ROOTS = "runtimeWorkspaceRoots"


def chosen_environments(
    services: Services,
    environments: Sequence[TurnEnvironmentParams] | None,
    cwd: str | None = None,
    roots: Sequence[str] | None = None,
) -> Overrides:
    """Collect the environments and folders of a request, and nothing else of it.

    `cwd` and `roots` are the members of the request itself. The folder of an entry for this machine
    wins over `cwd`, and the roots of the first entry over `roots`.

    Raises:
        RpcError: an id that is not known, or twice; folders that are not absolute; too many roots.
    """
    given, resolve = _roots(roots, ROOTS), services.configuration.resolve
    if environments is None:
        return Overrides(cwd=None if cwd is None else resolve(cwd), workspace_roots=given)
    stored: list[StoredEnvironment] = []
    here: str | None = cwd
    of_here: list[str] | None = None
    for index, one in enumerate(environments):
        member = f"environments[{index}]"
        _check_id(one.environment_id, f"{member}.environmentId", stored, services)
        of_entry = _roots(one.runtime_workspace_roots, f"{member}.{ROOTS}")
        if of_entry is None and index == 0:
            of_entry = given
        if one.environment_id == LOCAL:
            here, of_here = one.cwd, of_entry
            stored.append(StoredEnvironment(id=LOCAL))
        else:
            _check_folder(one.cwd, f"{member}.cwd")
            stored.append(
                StoredEnvironment(id=one.environment_id, cwd=one.cwd, workspace_roots=of_entry)
            )
    ids = [one.id for one in stored]
    return Overrides(
        cwd=None if here is None else resolve(here),
        workspace_roots=of_here if stored else given,
        without_environment=LOCAL not in ids,
        environments=[] if ids in ([], [LOCAL]) else stored,
    )


def _check_id(
    environment_id: str, field: str, before: Sequence[StoredEnvironment], services: Services
) -> None:
    if not services.environments.has(environment_id):
        raise _refused("unknown", "unknownEnvironment", environment_id, field)
    if any(one.id == environment_id for one in before):
        raise _refused("duplicate", "duplicateEnvironment", environment_id, field)


def _check_folder(cwd: str, field: str) -> None:
    # The wire has paths of Windows too, and no exec server runs there.
    if not cwd.startswith("/") or "\0" in cwd:
        rule = "must be an absolute POSIX path"
        raise invalid_member(field, rule)


def _refused(what: str, word: str, environment_id: str, field: str) -> RpcError:
    message = f"{what} turn environment id `{environment_id}`"
    return invalid_request(message, word, environmentId=environment_id, field=field)


def _roots(roots: Sequence[str] | None, field: str) -> list[str] | None:
    if roots is None:
        return None
    if len(roots) > MAX_ROOTS:
        rule = f"accepts at most {MAX_ROOTS} entries"
        raise invalid_member(field, rule)
    for index, root in enumerate(roots):
        if not root.startswith("/"):
            entry, rule = f"{field}[{index}]", "must be an absolute path"
            raise invalid_member(entry, rule)
    return list(roots)

"""config.toml, a profile, requirements.toml: can they be used, and what in them does nothing."""

from app_server.cli.checks.machine import Machine
from app_server.config.default_provider import default_provider_id
from app_server.config.key_check.unknown_keys import (
    keys_without_effect,
    unknown_in_file,
    unknown_in_overrides,
)
from app_server.config.requirements import read_requirements, requirements_of
from app_server.config.values import Config, ConfigError
from app_server.handlers.server.config_check import wrong_values
from app_server.models.catalogue.providers import chosen_provider
from app_server.threads.repair import Check


def check_config(machine: Machine) -> Check:
    """Read the files as a server does."""
    profile = machine.profile_file
    check = Check("config", message=str(machine.config_file))
    if profile is not None:
        check.message += f" and {profile.name}"
    try:
        demanded = read_requirements(machine.requirements)
        for warning in requirements_of(Config({}, requirements=demanded)).warnings:
            check.add("warning", warning)
            check.advise("ask whoever administers this machine")
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        check.advise("nothing starts until the administrator of this machine corrects that file")
    try:
        files = machine.read_files()
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        check.advise("correct the file at that place; no thread starts before")
        return check
    if profile is not None and not profile.exists():
        check.add("warning", f"{profile} is not there, so the profile changes nothing")
        check.advise(f"make that file, or leave out --profile {machine.profile}")
    unknown = [text for source in files.sources for text in unknown_in_file(source)]
    unknown += unknown_in_overrides(machine.overrides, "-c/--config")
    for text in unknown:
        check.add("warning", text)
    if unknown:
        check.advise("correct or remove these keys: nothing reads them (docs/config.md)")
    for path in keys_without_effect(files.document):
        check.add("ok", f"{'.'.join(path)} has an effect in Codex, and none here")
    _check_values(files.override(machine.overrides), check)
    return check


def _check_values(config: Config, check: Check) -> None:
    found = wrong_values(config)
    for error, instead in found:
        check.add("error", f"{str(error).strip()}; {instead}")
    if found:
        check.advise("correct each value at its place")
        return
    try:
        chosen_provider(config)
    except ConfigError as exc:
        check.add("error", str(exc).strip())
        table = f"[model_providers.{default_provider_id(config)}]"
        check.advise(f"add a table {table} to config.toml, or choose another one")

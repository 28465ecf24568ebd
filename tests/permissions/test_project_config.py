"""Settings of projects: what a trusted project may not set."""

from pathlib import Path

from app_server.config.values import Config
from app_server.permissions.project_config import read_project_layers, with_projects
from app_server.permissions.sandbox.roots import HIDDEN_KEY, MachinePaths, with_hidden_paths
from tests.support.harness import claim


@claim("sandbox:secrets")
def test_a_project_cannot_show_what_its_user_hides(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(f"{HIDDEN_KEY} = []\nmodel = 'm'\n")
    trusted = {str(tmp_path): {"trust_level": "trusted"}}
    config = Config({HIDDEN_KEY: ["/srv/hidden"], "projects": trusted})
    layers = read_project_layers(config, str(tmp_path))
    assert [(layer.ignored, layer.document) for layer in layers] == [([HIDDEN_KEY], {"model": "m"})]
    with_project = with_projects(config, layers)
    assert with_project.document["model"] == "m"
    assert "/srv/hidden" in with_hidden_paths(with_project, MachinePaths("/home", "/u")).secrets


def test_a_project_cannot_say_who_is_notified_or_what_work_may_cost(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    keys = ["budget", "model_prices", "notification_hosts", "notifications", "notify"]
    lines = [f"{key} = []" for key in keys]
    (tmp_path / ".codex" / "config.toml").write_text("\n".join(lines))
    config = Config({"projects": {str(tmp_path): {"trust_level": "trusted"}}})
    layers = read_project_layers(config, str(tmp_path))
    assert [(layer.ignored, layer.document) for layer in layers] == [(keys, {})]

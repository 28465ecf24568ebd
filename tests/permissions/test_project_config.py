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

"""Settings of projects: what a trusted project may not set."""

from pathlib import Path

from app_server.config.values import Config
from app_server.permissions.confinement.places import HIDDEN_KEY, Places, configured_places
from app_server.permissions.project_config import read_project_layers, with_projects
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
    assert "/srv/hidden" in configured_places(with_project, Places("/home", "/u")).secrets

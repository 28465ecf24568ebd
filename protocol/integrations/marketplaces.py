"""marketplace/*: which marketplaces of plugins are configured."""

from protocol.model import WireModel
from protocol.values import AbsolutePathBuf


class MarketplaceAddParams(WireModel):
    """Configure a marketplace."""

    source: str
    """Folder of the server's machine, or a Git repository."""
    ref_name: str | None = None
    """Branch or tag; repositories only."""
    sparse_paths: list[str] | None = None
    """The only folders to check out; repositories only."""


class MarketplaceAddResponse(WireModel):
    """The marketplace is configured."""

    marketplace_name: str
    installed_root: AbsolutePathBuf
    """The folder that it is read from."""
    already_added: bool


class MarketplaceRemoveParams(WireModel):
    """Configure a marketplace no longer."""

    marketplace_name: str


class MarketplaceRemoveResponse(WireModel):
    """The marketplace is not configured any more."""

    marketplace_name: str
    installed_root: AbsolutePathBuf | None = None
    """The copy that was deleted; null if there was none."""


class MarketplaceUpgradeParams(WireModel):
    """Fetch marketplaces of Git repositories again."""

    marketplace_name: str | None = None
    """Null means all of them."""


class MarketplaceUpgradeErrorInfo(WireModel):
    """A marketplace that could not be fetched."""

    marketplace_name: str
    message: str


class MarketplaceUpgradeResponse(WireModel):
    """What was fetched, and what could not be."""

    selected_marketplaces: list[str]
    upgraded_roots: list[AbsolutePathBuf]
    errors: list[MarketplaceUpgradeErrorInfo]

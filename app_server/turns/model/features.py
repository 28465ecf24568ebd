"""What a model can do, as far as a turn depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFeatures:
    """One model."""

    freeform_patch: bool = False
    """Whether it takes custom tools with a grammar."""
    images: bool = True
    """Whether it reads images."""


UNKNOWN_MODEL = ModelFeatures()

"""Five papers on flash storage under databases, reproduced on three tiers."""

from importlib.metadata import version

__version__ = version("flashlab")

"""Five papers on flash storage under databases, reproduced on three tiers."""

from importlib.metadata import version

from harness import same_bits

same_bits.ask()

__version__ = version("flashlab")

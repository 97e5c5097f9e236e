"""The version, on its own so that no module imports the package root."""

__version__ = "0.2.0"

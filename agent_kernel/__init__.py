"""An agent runtime that lives in Jupyter: ``%%agent`` on a model of your own, one conversation per notebook."""

__version__ = "0.1.0"

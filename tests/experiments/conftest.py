"""Runs of a few steps, made by the command line, as in tests/cli."""

from tests.cli.conftest import (
    pairs as pairs,
    refused as refused,
    regard as regard,
    trained as trained,
    unattended as unattended,
)

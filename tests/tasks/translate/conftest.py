"""The run of a translator that the tests of the command line share."""

from tests.cli.conftest import pairs as pairs, trained as trained

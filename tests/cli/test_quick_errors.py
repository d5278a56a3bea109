"""Errors that need no model are printed without PyTorch, which takes seconds to import."""

import subprocess
import sys

COMMANDS = [
    "train translate --widht 3",
    "train translate --model transformer --width 16 --heads 3",
    "train language-model --width 10 --heads 4",
    "train masked-lm --width 10 --heads 4",
    "train tag --model transformer --width 10 --heads 4",
    "train translate --train missing.tsv",
    "train classify-image --train missing",
    "compare classify-image --train missing --gate se",
    "train missing",
    "predict missing",
    "view missing",
    "generate missing",
    "serve missing",
]
CODE = """
import sys
from regard.cli.main import main
for command in sys.argv[1:]:
    print(command, main(command.split()), "torch" in sys.modules, sep=": ")
"""


def test_errors_do_not_import_torch() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE, *COMMANDS], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{command}: 2: False" for command in COMMANDS]
    assert ran.stderr.count("regard: ") == len(COMMANDS)

"""The baselines of a finished training, in baselines.json, and the sentences that compare the model with them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from regard.common import atomic_files
from regard.training.protocol import BaselineReport
from regard.training.run_folder import BASELINES


def write(report: BaselineReport, run: Path) -> None:
    content = {name: value for name, value in asdict(report).items() if name != "advice"}
    atomic_files.write_atomically(run / BASELINES, [json.dumps(content, ensure_ascii=False).encode(), b"\n"])


def sentences(report: BaselineReport, score: float) -> Sequence[str]:
    """The scores of the baselines beside that of the best weights, and advice if one of them is not beaten."""
    sign = 1 if report.higher_is_better else -1
    listed = ", ".join(f"{name} {value:.2f}" for name, value in report.scores.items())
    told = [f"Baselines on the same data, {report.metric}: {listed}; the model {score:.2f}."]
    name, value = max(report.scores.items(), key=lambda item: sign * item[1])
    if sign * score <= sign * value:
        advice = f"; try {report.advice}" if report.advice else "; train it longer, or on more data"
        told.append(f"The model does not beat the {name}{advice}.")
    return told

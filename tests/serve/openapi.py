"""schemathesis against the service: python -m tests.serve.openapi [EXAMPLES [TASK ...]], or make openapi.

It reads /openapi.json and sends requests that fit it, that miss it by a little, and that are at its limits. All of its
checks must hold: no status 5xx; no status, content type or body that is not documented; no wrong request that is
accepted; no right one that is refused.

A schema cannot say which strings are images or stories, so schemathesis_hooks.py makes some. Nor can it say how many
tokens or attention weights a text has: the texts of these services are short enough.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.serve import pictures
from tests.serve.conftest import running_models
from tests.serve.test_rounding import translator
from tests.serve.text_runs import TEXT_RUNS, text_run
from tests.tasks.transcribe.test_endpoint import small_predictor

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.serve.served_model import ServedModel
from regard.tasks.shared.image_endpoint import ImageEndpoint
from regard.tasks.transcribe.endpoint import SoundEndpoint
from regard.tasks.translate.options import Seq2SeqOptions

HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
LIMITS = Limits(characters=200, tokens=200)


def translate() -> Endpoint:
    made = translator(Seq2SeqOptions(width=16, hidden=24, dropout=0.0))
    return type(made)(made.predictor, LIMITS, run="tiny", step=1)


def trained(task: str) -> Endpoint:
    with tempfile.TemporaryDirectory() as folder:
        return text_run(task, Path(folder)).predictor.endpoint(LIMITS, run="tiny", step=2)


# task -> its endpoint, for every task that is served
ENDPOINTS: dict[str, Callable[[], Endpoint]] = {
    **{task: (lambda task=task: trained(task)) for task in TEXT_RUNS},
    "translate": translate,
    "classify-image": pictures.endpoint,
    "glimpse": lambda: ImageEndpoint(pictures.glimpse_classifier(), Limits(), run="tiny", step=4),
    "caption": lambda: ImageEndpoint(pictures.captioner(), Limits(), run="tiny", step=4),
    "transcribe": lambda: SoundEndpoint(small_predictor(), Limits(), run="tiny", step=4),
}


def check(endpoint: Endpoint, examples: int, phases: str = "examples,coverage,fuzzing") -> tuple[int, str]:
    """The exit code of schemathesis, and its report."""
    # it writes files into the folder where it runs
    with running_models([ServedModel(endpoint, Limits())]) as (url, _), tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", "all",
            "--max-examples", str(examples), "--generation-deterministic",
            "--continue-on-failure", "--no-color",
            "--phases", phases,
        ]  # fmt: skip
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)}
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def main(arguments: Sequence[str]) -> int:
    examples, *names = arguments or ["200"]
    codes = []
    for name in names or ENDPOINTS:
        code, report = check(ENDPOINTS[name](), int(examples))
        print(f"{name}\n{report}", flush=True)
        codes.append(code)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

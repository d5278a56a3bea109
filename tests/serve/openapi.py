"""schemathesis against the service: python -m tests.serve.openapi [EXAMPLES [NAME ...]], or make openapi.

It reads /openapi.json and sends requests that fit it, that miss it by a little, and that are at its limits. All of its
checks must hold: no status 5xx; no status, content type or body that is not documented; no wrong request that is
accepted; no right one that is refused. The last check is for texts alone: a schema can neither say which strings are
images, nor that nbest is at most beam.
"""

import contextlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence

from tests.serve import pictures, texts
from tests.serve.test_rounding import translator

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.serve.server import address, listen, server
from regard.serve.text_endpoint import TextEndpoint
from regard.tasks._image_endpoint import ImageEndpoint
from regard.tasks.translate.options import Seq2SeqOptions


def text_endpoint() -> Endpoint:
    made = texts.text_endpoint(pictures=32)
    made.predictor.longest = 4000  # type: ignore[attr-defined]
    return made


ENDPOINTS: dict[str, Callable[[], Endpoint]] = {
    "classify-text": text_endpoint,
    "translate": lambda: translator(Seq2SeqOptions(width=16, hidden=24, dropout=0.0)),
    "classify": pictures.endpoint,
    "caption": lambda: ImageEndpoint(pictures.captioner(), Limits(), run="tiny", step=4),
}


@contextlib.contextmanager
def running(endpoint: Endpoint) -> Iterator[str]:
    """The address of a service in a thread of this process."""
    with listen("127.0.0.1", 0) as socket:
        made = server(endpoint, Limits(), host="127.0.0.1")
        thread = threading.Thread(target=made.run, kwargs={"sockets": [socket]})
        thread.start()
        try:
            yield address(socket)
        finally:
            made.should_exit = True
            thread.join(20)


def check(endpoint: Endpoint, examples: int, phases: str = "examples,coverage,fuzzing") -> tuple[int, str]:
    """The exit code of schemathesis, and its report."""
    left_out = ["--exclude-checks", "positive_data_acceptance"] if not isinstance(endpoint, TextEndpoint) else []
    # it writes files into the folder where it runs
    with running(endpoint) as url, tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", "all",
            "--max-examples", str(examples), "--generation-deterministic",
            "--continue-on-failure", "--no-color",
            "--phases", phases, *left_out,
        ]  # fmt: skip
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def main(arguments: Sequence[str]) -> int:
    examples, *names = arguments or ["200"]
    codes = []
    for name in names or ENDPOINTS:
        code, report = check(ENDPOINTS[name](), int(examples))
        print(f"{name}\n{report}")
        codes.append(code)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

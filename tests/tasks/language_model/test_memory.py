"""Models with a memory: it belongs to its row, is part of checkpoints, and makes a resumed run exact."""

import json
from pathlib import Path

import pytest
import torch
from tests.tasks.laws import check_resume

from regard.cli.main import main
from regard.models.transformer_xl import TransformerXL
from regard.tasks.language_model import row_memory
from regard.tasks.language_model.data import load_segments
from regard.tasks.language_model.options import LanguageModelConfig
from regard.tasks.language_model.row_memory import RowMemory
from regard.training.checkpoint import read

TEXT = "".join(f"the {animal} sat on the {place}.\n" for animal in ("cat", "dog", "hen") for place in "abcdefgh")
SMALL = ["--width", "6", "--segment", "8", "--batch", "3", "--valid-tokens", "30"]
STEPS = ["--threads", "1", "--device", "cpu", "--validate-every", "4", "--warmup", "1", "--schedule", "constant"]
MODELS = {
    "transformer-xl": ["--layers", "2", "--heads", "2", "--memory", "11", "--dropout", "0.1"],
    "gpt2": ["--layers", "1", "--heads", "2", "--memory", "5"],
    "recurrent": ["--memory", "4"],
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return path


def train(text: Path, model: str, out: Path, steps: int) -> None:
    options = ["--train", str(text), "--model", model, *MODELS[model], *SMALL, *STEPS]
    assert main(["train", "language-model", *options, "--steps", str(steps), "--out", str(out)]) == 0


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_run_is_an_uninterrupted_one_that_commands_take(
    model: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # an epoch has more than five steps, so that the memory is not empty where the run stops
    def start(out: Path, steps: int) -> None:
        train(text, model, out, steps)
        assert read(out / "last.safetensors").tensors["problem.memory"].numel()

    check_commands(check_resume(start, tmp_path, first=5, steps=9), capsys)


def check_commands(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(out), "--window", "9", "--memory", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["window"], found["stride"], found["memory"]) == (9, 9, 20)
    assert main(["evaluate", str(out), "--stride", "3"]) == 2
    assert "--stride 3 is for models without a memory" in capsys.readouterr().err
    assert main(["generate", str(out), "the cat", "--tokens", "30"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("the cat")
    assert "grew past" not in printed.err
    assert main(["predict", str(out), "the cat", "--tokens", "5", "--picture", str(out / "heads.png")]) == 0
    assert (out / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_rows_keep_their_own_memory(tmp_path: Path, text: Path) -> None:
    """A batch of rows is the rows one by one; an epoch begins without a memory."""
    config = LanguageModelConfig.of(
        train=(text,), model="transformer-xl", width=6, heads=2, layers=1, segment=8, batch=3, memory=11
    )
    problem = config.prepare(tmp_path)
    torch.manual_seed(0)
    model = problem.build_model().eval()
    planned = problem.plan_epoch(0)[:3]
    with torch.no_grad():
        together = [float(problem.loss(model, problem.load_batch(each, 0, 1)).total) for each in planned]  # type: ignore[arg-type]
        first = float(problem.loss(model, problem.load_batch(planned[0], 0, 1)).total)  # type: ignore[arg-type]
        assert first == together[0]
        alone = [0.0] * 3
        for row in range(3):
            for n, each in enumerate(planned):
                batch = load_segments(problem.stream, each, 8, row, 3, problem.documents)
                assert batch is not None
                alone[n] += float(problem.loss(model, batch).total)
    assert alone == pytest.approx(together, rel=1e-4)
    before = problem.state_dict()
    problem.validate(model)
    assert all(torch.equal(before[key], tensor) for key, tensor in problem.state_dict().items())


@pytest.mark.parametrize(("rows", "world"), [(5, 2), (3, 3), (2, 3)])
def test_processes_gather_and_share_out_their_rows(rows: int, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TransformerXL(11, width=6, layers=2, heads=2, memory=4)
    whole = [torch.rand(rows, 4, 6) for _ in range(2)]
    parts = [[t[rank if rank < rows else 0 :: world] for t in whole] for rank in range(world)]

    def gather(into: list[object], _: object) -> None:
        into[:] = parts

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    for rank in range(world):
        monkeypatch.setattr(row_memory, "_rank_and_world", lambda rank=rank: (rank, world))
        memory = RowMemory(rows)
        memory.tensors = tuple(parts[rank])
        state = memory.state_dict()
        assert torch.equal(state["memory"], torch.cat([t.flatten() for t in whole]))
        restored = RowMemory(rows)
        assert restored.load(model, torch.device("cpu")) is None
        restored.load_state_dict(state)
        assert all(torch.equal(one, other) for one, other in zip(restored.tensors, parts[rank], strict=True))

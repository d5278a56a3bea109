"""transcribe: options, files, learning, listening, and one sentence for what cannot be done."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.for_each import for_each

from regard.cli.main import main
from regard.data.audio.wav import Sound, wav_bytes
from regard.data.embedded.spelling import RATE, speak, utterance
from regard.tasks.loading import load_run
from regard.tasks.transcribe.data import SpeechFiles, SpelledSpeech, contents
from regard.tasks.transcribe.options import (
    EvaluateTranscripts,
    ListenAttendSpellOptions,
    PredictTranscripts,
    SpeechTransformerOptions,
    Transcribe,
)
from regard.tasks.transcribe.predictor import Transcriber
from regard.tasks.transcribe.task import listening_delays

SMALL = ["--width", "8", "--hidden", "12", "--mels", "11", "--batch", "900", "--valid-lines", "3", "--threads", "1"]


def wav(path: Path, seconds: float = 0.2, rate: int = 8000) -> Path:
    samples = np.sin(np.arange(round(seconds * rate)) / 5).astype(np.float32) / 2
    path.write_bytes(wav_bytes(Sound(samples, rate)))
    return path


def table(folder: Path, texts: list[str], name: str = "speech.tsv") -> Path:
    lines = [f"{wav(folder / f'{name}{n}.wav', 0.2 + 0.05 * n).name}\t{text}\n" for n, text in enumerate(texts)]
    (folder / name).write_text("".join(lines))
    return folder / name


@pytest.fixture(scope="module")
def online_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "online"
    args = ["train", "transcribe", "--online", "--steps", "2", "--out", str(path), *SMALL]
    assert main(args) == 0
    return path


def test_options_fill_each_other() -> None:
    assert Transcribe().model == ListenAttendSpellOptions("location-sensitive", 64, hidden=128)
    assert Transcribe().rate == 8000
    assert Transcribe.of(online=True).model.attention == "monotonic"
    assert Transcribe.of(model="transformer").model == SpeechTransformerOptions(width=64)
    assert Transcribe.of(train=Path("a.tsv")).rate == 16000
    assert Transcribe.replaced("online", True, {}) == ("attention",)
    assert PredictTranscripts(top=7).beam == 7


WRONG: dict[str, Any] = {
    "attention='additive' attends to the whole sound, and online writes while it listens; choose": lambda: (
        Transcribe.of(online=True, attention="additive")
    ),
    "attention='hard-argmax' cannot be learned": lambda: Transcribe.of(attention="hard-argmax"),
    "alphabet must have one letter or more, got none": lambda: Transcribe.of(train=Path("a.tsv"), alphabet=""),
    "alphabet=abc belongs to sound of your own": lambda: Transcribe.of(alphabet="abc"),
    "--test must be one .tsv file or folder, got 2": lambda: EvaluateTranscripts(test=(Path("a"), Path("b"))),
    "--times 2 is for embedded data, and --test names files": lambda: EvaluateTranscripts(times=2, test=(Path("a"),)),
    "--beam 3 searches the whole sound, and --online prints letters while it listens": lambda: PredictTranscripts(
        beam=3, online=True
    ),
    "--top 3 exceeds --beam 2; raise --beam": lambda: PredictTranscripts(beam=2, top=3),
}


@for_each("message", WRONG)
def test_wrong_options(message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011, the message is read below
        WRONG[message]()
    assert message in str(error.value)


def test_a_small_model_learns_two_words(tmp_path: Path) -> None:
    torch.manual_seed(0)
    texts = ["ab", "ca", "bc"] * 4
    lines = []
    for n, text in enumerate(texts):
        sound = Sound(speak(text, np.random.default_rng(n)).samples, RATE)
        (tmp_path / f"{n}.wav").write_bytes(wav_bytes(sound))
        lines.append(f"{n}.wav\t{text}\n")
    (tmp_path / "s.tsv").write_text("".join(lines))
    task = Transcribe.of(
        train=tmp_path / "s.tsv", rate=8000, mels=13, width=16, hidden=24, batch=900, dropout=0.0, attention="additive"
    )
    problem = task.prepare(tmp_path / "run")
    model = problem.build_model()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for epoch in range(12):
        for planned in problem.plan_epoch(epoch):
            batch = problem.load_batch(planned, 0, 1)
            assert batch is not None
            loss = problem.loss(model, batch)
            optimizer.zero_grad()
            loss.total.backward()
            optimizer.step()
            losses.append(float(loss.total.detach()) / loss.count)
    assert losses[-1] < 0.5 * losses[0]
    with torch.no_grad():
        assert problem.validate(model.eval()).values["nll"] < losses[0]


def test_letters_of_held_out_files_are_known(tmp_path: Path) -> None:
    path = table(tmp_path, ["a", "b", "c"])
    problem = Transcribe.of(train=path, mels=7).prepare(tmp_path / "run")
    assert {"a", "b", "c"} == {*problem.train.texts, *problem.valid.texts}
    assert len(problem.valid) == 1


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path = table(tmp_path, ["ab", "ba", "a"])
    with pytest.raises(
        ValueError, match=r"speech.tsv:[12]: the transcript '(ab|ba)' has 'b', which is outside the alph"
    ):
        Transcribe.of(train=path, alphabet="ac").prepare(tmp_path / "run")
    other = table(tmp_path, ["ab", "né"], "other.tsv")
    (note,) = Transcribe.of(train=path, valid=other, test=other).prepare(tmp_path / "run").warnings()
    assert note == "letters that the run never saw count as missed: 2 ('n', 'é')"
    with pytest.raises(ValueError, match="all 2 files of .* last more than max_seconds=0.1; raise it"):
        Transcribe.of(train=path, max_seconds=0.1).prepare(tmp_path / "run2")
    problem = Transcribe.of(train=path, valid=path, max_seconds=0.22).prepare(tmp_path / "run3")
    assert "dropped 2 of more than 0.22 seconds" in problem.summary
    with pytest.raises(ValueError, match="has 1 utterance and too few different ones to hold some out"):
        Transcribe.of(train=table(tmp_path, ["a"], "one.tsv")).prepare(tmp_path / "run4")
    wav(tmp_path / "other.tsv1.wav", 0.01)
    with pytest.raises(ValueError, match=r"other.tsv:2: .*other.tsv1.wav lasts 10 ms, less than one window of 25 ms"):
        Transcribe.of(train=other).prepare(tmp_path / "run5")


def test_listening_equals_searching(online_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(Sound(utterance("test", (0, 1)).samples, RATE)))
    capsys.readouterr()
    assert main(["predict", str(online_run), str(path), "--online"]) == 0
    heard = capsys.readouterr().out
    assert main(["predict", str(online_run), str(path), "--beam", "1"]) == 0
    assert capsys.readouterr().out == heard
    assert main(["predict", str(online_run), str(path), "--online", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert "".join(letter["letter"] for letter in values["letters"]).replace("␣", " ") == values["transcript"]
    assert main(["predict", str(online_run), str(path), "--online", "--picture", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_online_needs_a_run_that_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, ["ab", "ba", "a"])
    run = tmp_path / "run"
    assert main(["train", "transcribe", "--train", str(path), "--steps", "1", "--out", str(run), *SMALL]) == 0
    capsys.readouterr()
    assert main(["predict", str(run), str(tmp_path / "speech.tsv0.wav"), "--online"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--online is for runs that were trained with --online, and this one was not" in captured.err
    assert main(["evaluate", str(run), "--times", "2"]) == 2
    assert "--times 2 is for embedded data, and " in (error := capsys.readouterr().err)
    assert "is a run on files; leave it out" in error
    assert main(["evaluate", str(run), "--split", "valid"]) == 0


def test_nothing_is_printed_for_files_that_cannot_be_read(
    online_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = wav(tmp_path / "good.wav", 0.4)
    mu_law = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 38, b"WAVE", b"fmt ", 16, 7, 1, 8000, 8000, 1, 8, b"data", 2)
    (tmp_path / "bad.wav").write_bytes(mu_law + b"ab")
    wav(tmp_path / "short.wav", 0.01)
    for bad, message in (
        ("bad.wav", "is compressed (mu-law)"),
        ("none.wav", "there is no file"),
        ("short.wav", "lasts 10 ms, less than one window of 25 ms"),
    ):
        capsys.readouterr()
        assert main(["predict", str(online_run), str(good), str(tmp_path / bad), "--online"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert len(captured.err.splitlines()) == 1


def test_delays_are_those_of_the_stops(online_run: Path) -> None:
    predictor = load_run(online_run, device="cpu").predictor
    assert predictor.seconds_per_state == pytest.approx(0.04)
    speech = SpelledSpeech("test", 0, 3)

    class Perfect(Transcriber):
        def listen(self, sound: Sound):  # type: ignore[no-untyped-def]
            from regard.models.listening.online import HeardToken

            (n,) = (n for n in range(3) if len(speech.sound(n, RATE).samples) == len(sound.samples))
            for token in self.tokenizer.encode([speech.texts[n]])[0]:
                yield HeardToken(token, 4)

    perfect = Perfect(predictor.model, predictor.tokenizer, predictor.features)
    ends = np.concatenate([speech.ends(n) for n in range(3)])
    np.testing.assert_allclose(listening_delays(perfect, speech, RATE), 1000 * (5 * 0.04 - 0.01 + 0.025 - ends))


def test_a_sound_with_other_metadata_is_a_copy(tmp_path: Path) -> None:
    sound = wav_bytes(Sound(np.linspace(-0.5, 0.5, 800, dtype=np.float32), 8000))
    note = b"LIST" + (4).to_bytes(4, "little") + b"INFO"
    size = int.from_bytes(sound[4:8], "little") + len(note)
    (tmp_path / "a.wav").write_bytes(sound)
    (tmp_path / "b.wav").write_bytes(sound[:4] + size.to_bytes(4, "little") + sound[8:] + note)
    (tmp_path / "c.wav").write_bytes(wav_bytes(Sound(np.linspace(-0.5, 0.4, 800, dtype=np.float32), 8000)))
    (tmp_path / "all.tsv").write_text("a.wav\tx\nb.wav\tx\nc.wav\tx\n")
    first, second, third = contents(SpeechFiles.read(tmp_path / "all.tsv"))
    assert first == second != third

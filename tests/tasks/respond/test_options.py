"""Options and files that are refused, each by one sentence."""

from pathlib import Path
from typing import Any

import pytest
from tests.tasks.respond.runs import FLAT, SMALL

from regard.cli.main import main
from regard.tasks.respond.options import EvaluateReplies, PredictReplies, Respond


def test_the_learning_rate_is_that_of_the_data_unless_a_decoder_is_trained_further() -> None:
    bookings_rate, rate = (Respond.training_defaults(None, data)["lr"] for data in ("bookings", "files"))
    assert bookings_rate == 4e-3 != rate == Respond.training["lr"]
    decoder = Respond.of(decoder="folder").model
    assert Respond.training_defaults(decoder, "bookings")["lr"] == decoder.training["lr"] == 1e-4


def test_options() -> None:
    assert Respond.of(model="hierarchical").longest == 13 * 49
    assert PredictReplies().search == PredictReplies(beam=1).search
    with pytest.raises(ValueError, match="init_std must be positive and finite, got 0.0; leave it out"):
        Respond.of(init_std=0.0)
    wide, narrow = (Respond.of(init_std=std, dropout=0.0).model.build(300, longest=50) for std in (0.125, 0.02))
    assert 5 < wide.embedding.weight.std() / narrow.embedding.weight.std() < 7.5
    with pytest.raises(
        ValueError, match=r"^smoothing=0.1 is for output='softmax', and copied tokens are not smoothed; leave it out$"
    ):
        Respond.of(output="pointer-generator", smoothing=0.1)
    with pytest.raises(ValueError, match=r"turn_window must be 1 or more, got 0"):
        Respond.of(turn_window=0)
    with pytest.raises(ValueError, match="--nbest 2 exceeds --beam 1; raise --beam"):
        PredictReplies(nbest=2)
    with pytest.raises(ValueError, match="--beam 2 means nothing with --sample; leave one of them out"):
        PredictReplies(beam=2, sample=True)
    with pytest.raises(ValueError, match="--top-k 2 means nothing without --sample; add --sample or leave it out"):
        PredictReplies(top_k=2)
    with pytest.raises(ValueError, match="turns must be 1 or more, got 0"):
        EvaluateReplies(turns=0)


@pytest.mark.parametrize("options", [{"staged_epochs": 2}, {"history_dropout": 0.5}])
def test_histories_are_cut_for_single_replies_alone(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"^{name}={value} is for replies='all', and with replies='second' one pass"):
        Respond.of(data="bookings", **options)


def test_shares_and_numbers_of_epochs() -> None:
    with pytest.raises(ValueError, match=r"^staged_epochs must be 0 or more, got -1; try staged_epochs=0$"):
        Respond.of(data="bookings", staged_epochs=-1)
    with pytest.raises(
        ValueError, match=r"^history_dropout must be 0 or more and below 1, got 1.0; try history_dropou"
    ):
        Respond.of(data="bookings", history_dropout=1.0)


SENTENCES = {
    "": "a dialogue must be its turns so far, separated by tabs, got ''; give one turn with words at least",
    " \t ": r"a dialogue must be its turns so far, separated by tabs, got ' \\t '; give one turn with words at least",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_a_dialogue_without_words_is_one_sentence(
    runs: dict[str, Path], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["predict", str(runs["flat"]), "good", text]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"regard: {SENTENCES[text]}\n".replace("\\\\", "\\")


def test_wrong_files_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "dialogues.tsv", tmp_path / "run"
    cases = {
        "no tabs\nhere\n": f"{path}:1: a line must have one dialogue per line, its turns separated by tabs or by "
        "__eou__, got 'no tabs'; put tabs between turns",
        "a\t\n\tb\n": f"{path} has no dialogue of two turns or more; it must hold one dialogue per line, its turns "
        "separated by tabs or by __eou__",
        "a\tb\n": f"--train {path} has 1 dialogue and too few different ones to hold some out; give more dialogues, or "
        "--valid as well",
        "a\tb\na\tc\n": f"--train {path} has 2 dialogues and too few different ones to hold some out; give more "
        "dialogues, or --valid as well",
        "".join(f"{n}\t\t\t\tb\n" for n in range(9)): "train has no reply with words in the --turns 3 before it, so "
        "there is nothing to learn; give more turns, or other dialogues",
    }
    for content, sentence in cases.items():
        path.write_text(content)
        capsys.readouterr()
        assert main(["train", "respond", "--train", str(path), *FLAT, *SMALL, "--out", str(out)]) == 2
        printed = capsys.readouterr()
        # no end of a training that does not begin
        assert printed.out == ""
        assert printed.err.splitlines()[-1] == f"regard: {sentence}"
        assert not [*out.glob("*.safetensors"), *out.glob("tokens.json"), *out.glob("dialogues.json")]

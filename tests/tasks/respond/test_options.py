"""Options and files that are refused, each by one sentence."""

import json
from pathlib import Path

import pytest
from tests.tasks.respond.runs import FLAT, SMALL

from regard.cli.main import main
from regard.tasks.respond.data import ReplyFacts
from regard.tasks.respond.options import PredictReplies, Respond


def test_the_learning_rate_is_that_of_the_data_unless_a_decoder_is_trained_further() -> None:
    bookings_rate, rate = (Respond.training_defaults(None, data)["lr"] for data in ("bookings", "files"))
    assert bookings_rate == 4e-3 != rate == Respond.training["lr"]
    decoder = Respond.of(decoder="folder").model
    assert Respond.training_defaults(decoder, "bookings")["lr"] == decoder.training["lr"] == 1e-4


def test_options() -> None:
    assert Respond.of(model="hierarchical").longest == 13 * 49
    assert PredictReplies().search == PredictReplies(beam=1).search
    wide, narrow = (Respond.of(init_std=std, dropout=0.0).model.build(300, longest=50) for std in (0.125, 0.02))
    assert 5 < wide.embedding.weight.std() / narrow.embedding.weight.std() < 7.5
    with pytest.raises(
        ValueError, match=r"^smoothing=0.1 is for output='softmax', and copied tokens are not smoothed; leave it out$"
    ):
        Respond.of(output="pointer-generator", smoothing=0.1)
    with pytest.raises(ValueError, match="--nbest 2 exceeds --beam 1; raise --beam"):
        PredictReplies(nbest=2)
    with pytest.raises(ValueError, match="--beam 2 means nothing with --sample; leave one of them out"):
        PredictReplies(beam=2, sample=True)
    with pytest.raises(ValueError, match="--top-k 2 means nothing without --sample; add --sample or leave it out"):
        PredictReplies(top_k=2)
    for name, value in (("staged_epochs", 2), ("history_dropout", 0.5)):
        with pytest.raises(
            ValueError, match=f"^{name}={value} is for replies='all', and with replies='second' one pass"
        ):
            Respond.of(data="bookings", **{name: value})


def test_a_dialogue_without_words_is_one_sentence(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("", " \t "):
        capsys.readouterr()
        assert main(["predict", str(runs["flat"]), "good", text]) == 2
        said = (
            f"a dialogue must be its turns so far, separated by tabs, got {text!r}; give one turn with words at least"
        )
        assert capsys.readouterr() == ("", f"regard: {said}\n")


@pytest.mark.parametrize("count", [-1, 10**400])
def test_counts_that_no_data_has_are_refused(count: int, tmp_path: Path) -> None:
    """A count of 400 digits is no floating-point number, and the baseline would fail."""
    ReplyFacts(counts=[1]).write(tmp_path)
    path = tmp_path / ReplyFacts.file
    path.write_text(json.dumps({**json.loads(path.read_text()), "counts": [1, count]}))
    with pytest.raises(ValueError, match=r"counts must be whole numbers from 0 to 2⁵³, got '(-1|10+…)'"):
        ReplyFacts.read(tmp_path)


def test_wrong_files_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "dialogues.tsv", tmp_path / "run"
    cases = {
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

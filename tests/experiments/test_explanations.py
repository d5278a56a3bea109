"""What the table of faithfulness leaves out is said beside it."""

from tests.attribution.classifiers import made

from regard.attribution.faithfulness import FaithfulnessReport, faithfulness
from regard.experiments.explanations import faithfulness_page


def test_methods_that_do_not_apply_are_said_once() -> None:
    predictor, given = made("bag")
    report = faithfulness(predictor, [given, "a bad film"])
    notes = report.notes
    assert len(notes) == 7
    assert notes[0] == (
        "attention does not apply: BagOfWords attends to no tokens, so its attention explains nothing; use the method "
        "leave-one-out"
    )
    assert faithfulness_page(report.inputs[0]).notes == tuple(f"{sentence}." for sentence in notes)
    assert FaithfulnessReport(report.inputs[:1]).notes == notes

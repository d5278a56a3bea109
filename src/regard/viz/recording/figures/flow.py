"""Attention between a passage and a question, in both directions, and the answer in the text."""

from pathlib import Path

from torch import Tensor

from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.plots.tinted_text import TintedParagraph, draw_paragraphs
from regard.viz.recording import selection
from regard.viz.text import labels

# the greatest numbers of tokens and of words of the answer
_MAX_TOKENS, _MAX_ROWS = 4000, 12


def flow_figure(recording: Recording, path: str | Path, *, span: tuple[int, int]) -> Path:
    """The passage, tinted by the question's attention, with frames around the words `span[0]` to before `span[1]`; and
    the question once per word of that span, tinted by the attention of the word.

    The recording has the passage as its queries and the question as its keys: its first map is from the passage to the
    question, its first reversed map the way back. Heads are averaged, and so are the words of the question.
    """
    forward, backward = (
        next((item for item in recording if item.is_reversed == is_back), None) for is_back in (False, True)
    )
    if forward is None or backward is None or recording.queries is None or recording.keys is None:
        raise ValueError(
            "this figure needs a map from the passage to the question, a reversed one and their words; record all "
            "layers of a reader"
        )
    passage, question = (
        [labels.visible_label(word) for word in words] for words in (recording.queries, recording.keys)
    )
    first, end = span[0], min(span[1], span[0] + _MAX_ROWS)
    if len(passage) + (end - first) * len(question) > _MAX_TOKENS:
        raise ValueError(
            f"this figure shows at most {_MAX_TOKENS} tokens, got a passage of {len(passage)} words and a question of "
            f"{len(question)}; write a page, .html, instead"
        )
    of_question, of_passage = _mean(backward).mean(0), _mean(forward)
    paragraphs = [TintedParagraph("question → passage, the answer framed", passage, of_question, range(*span))]
    paragraphs += [
        TintedParagraph(f"passage → question: {passage[n]}", question, of_passage[n]) for n in range(first, end)
    ]
    unverified = selection.unverified_suffix(forward) or selection.unverified_suffix(backward)
    notes = [f"said: {recording.about['said']}" if "said" in recording.about else ""]
    notes += ["dark: none, bright: the greatest weight of each paragraph"]
    return draw_paragraphs(paragraphs, path, selection.display_name(forward) + unverified, notes)


def _mean(recorded_map: RecordedMap) -> Tensor:  # -> "q k"
    """The weights of the first sample, the mean over its heads."""
    weights = selection.drawable_cells(recorded_map.weights.pick(0).dense(), recorded_map)
    return weights.reshape(-1, *weights.shape[-2:]).mean(0)

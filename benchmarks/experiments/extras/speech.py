"""The picture of a transcribed utterance."""

from pathlib import Path

from benchmarks.experiments.runner import TrainedRun
from regard.data.embedded.spelling import RATE
from regard.inference.predictor import labelled_recording
from regard.tasks.transcribe.data import SpelledSpeech
from regard.tasks.transcribe.predictor import SoundInput

_DRAWN = 3


def draw(run: TrainedRun, path: Path) -> None:
    """The attention to a test utterance, over its spectrogram."""
    sound = SoundInput(SpelledSpeech("test", 0, _DRAWN + 1).sound(_DRAWN, RATE))
    output, recording = labelled_recording(run.predictor, sound)
    run.predictor.draw(recording, sound, output, path)

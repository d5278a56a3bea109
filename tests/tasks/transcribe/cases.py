"""Tiny runs of transcribe."""

from tests.tasks.case import Case

CASES = {
    "transcribe": Case(
        "--train SPEECH --width 6 --hidden 8 --mels 13 --rate 8000 --masks 1 --batch 400 --valid-lines 3",
        ("SOUND",) * 2,
        ("additive", "location-sensitive"),
        ("ab", "c a"),
    ),
    "transcribe+online": Case(
        "--train SPEECH --online --cell lstm --width 6 --hidden 8 --mels 13 --rate 8000 --batch 400 --valid-lines 3",
        ("SOUND",) * 2,
        ("monotonic", "mocha"),
        ("ab", "c a"),
    ),
    "transcribe+transformer": Case(
        "--train SPEECH --model transformer --width 8 --heads 2 --layers 1 --mels 13 --rate 8000 --batch 400 "
        "--valid-lines 3",
        ("SOUND",) * 2,
        ("scaled-dot", "entmax"),
        ("ab", "c a"),
    ),
}

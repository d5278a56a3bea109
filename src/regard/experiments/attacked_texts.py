"""`regard attack` on a run that reads texts: the accuracy before and after, and the edits of every text."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.attacks import TextAttackResult
from regard.attacks.attack import attack
from regard.cli.output import note, warn
from regard.common.wording import plural
from regard.experiments.attacked_images import about_line, evenly_spaced
from regard.inference.edited_text import EditedText
from regard.inference.token_predictor import TokenPredictor
from regard.tasks.loading import LoadedRun, load_run
from regard.tasks.shared.text_options import AttackTexts
from regard.viz.plots.edited_texts import EditedParagraph, draw_edited_texts

if TYPE_CHECKING:
    from regard.cli.verbs.attack import AttackOptions

# texts per run, and those that a figure has room for
_COUNT, _DRAWN = 100, 12


def attack_text_run(options: "AttackOptions", of_task: AttackTexts, name: str, loaded: LoadedRun) -> None:
    """Prints the accuracy on held-out texts before and after an attack, or what it makes of typed texts."""
    predictor: Any = loaded.predictor
    assert isinstance(predictor, TokenPredictor)
    chosen = of_task.build(name)
    texts, targets, split = _examples(options, of_task, loaded)
    if not options.texts:
        predictor.attack_targets(texts, targets)  # raises for a target that the model cannot have
        note(f"{name} on {plural(len(texts), 'text')}")
    start = time.perf_counter()
    result = attack(predictor, texts, targets, chosen, options.seed)
    seconds = time.perf_counter() - start
    if options.picture is not None:
        if paragraphs := _paragraphs(predictor, texts, result):
            draw_edited_texts(paragraphs, options.picture, f"Texts before and after {name}")
            note(f"attacked texts are drawn in {options.picture}")
        else:
            note(f"{name} broke no text, so {options.picture} is not drawn; allow more changes, or a larger --k")
    if options.json:
        print(json.dumps(_as_json(options, name, loaded, texts, result, split, seconds), indent=2, ensure_ascii=False))
    elif options.texts:
        _print_texts(predictor, texts, result)
    else:
        _print_table(result)
        print(about_line(plural(len(texts), "text"), split, name, seconds, loaded))
    warn(result.warnings)


def _examples(
    options: "AttackOptions", of_task: AttackTexts, loaded: LoadedRun
) -> tuple[list[str], list[Any] | None, str]:
    """The texts, their targets (None: the predictions of the model), and the name of the split."""
    if options.texts:
        texts = [loaded.predictor.read(text) for text in options.texts]
        return texts, of_task.targets(len(texts)), "the command line"
    return _held_out(of_task, loaded, options.count or _COUNT)


def robust_text_accuracy(run: Path, name: str) -> float:
    """The accuracy of the best weights of a run on its test texts under an attack, in percent."""
    loaded = load_run(run)
    of_task: AttackTexts = loaded.config.Attack()
    texts, targets, _ = _held_out(of_task, loaded, _COUNT)
    predictor: Any = loaded.predictor
    return attack(predictor, texts, targets, of_task.build(name)).accuracy


def _held_out(of_task: AttackTexts, loaded: LoadedRun, count: int) -> tuple[list[str], list[Any], str]:
    """So many texts of the split, evenly spaced, their targets, and the name of the split."""
    predictor: Any = loaded.predictor
    texts, targets, split = loaded.attack_examples(of_task)
    readable = [n for n, text in enumerate(texts) if text.strip() and predictor.token_places(text)]
    if left_out := len(texts) - len(readable):
        note(f"{plural(left_out, 'text')} without tokens left out")
    rows = [readable[n] for n in evenly_spaced(len(readable), count)]
    return [texts[n] for n in rows], [targets[n] for n in rows], split


def _newly_broken(result: TextAttackResult) -> list[int]:
    return (result.broken & ~result.was_broken).nonzero().flatten().tolist()


def _numbers(result: TextAttackResult) -> dict[str, float]:
    """The numbers of the table; flips are those of broken texts."""
    rows = _newly_broken(result)
    return {
        "clean_accuracy": result.clean_accuracy,
        "accuracy": result.accuracy,
        "flips": float(result.distance[rows].double().mean()) if rows else 0.0,
        "queries": float(result.queries.double().mean()),
        "unreachable": int(result.is_reread.sum()),
    }


def _print_table(result: TextAttackResult) -> None:
    numbers, broken = _numbers(result), len(_newly_broken(result))
    clean, under = numbers["clean_accuracy"], numbers["accuracy"]
    print(f"clean accuracy         {clean:<8.2f}{'█' * round(clean / 4)}".rstrip())
    print(f"accuracy under attack  {under:<8.2f}{'█' * round(under / 4)}".rstrip())
    print(f"flips                  {numbers['flips']:<8.2f}mean of the {plural(broken, 'text')} that the attack broke")
    print(f"queries                {numbers['queries']:<8.1f}texts that the model read, mean per text")
    print(f"unreachable            {numbers['unreachable']:<8}broken by text that is read as other tokens than chosen")
    inserted = Counter(
        each.text[edit.start : edit.end].strip() for each in result.inputs for edit in each.edits if not edit.before
    )
    for words, count in inserted.most_common():
        print(f"trigger                {words!r} broke {plural(count, 'text')}")


def _print_texts(predictor: Any, texts: list[str], result: TextAttackResult) -> None:
    for n, (before, edited, after) in enumerate(_readings(predictor, texts, result, range(len(texts)))):
        if result.was_broken[n]:
            print(f"wrong before the attack: {texts[n]}\n  {before}")
        elif not result.broken[n]:
            print(f"resists: {texts[n]}\n  {before}")
        else:
            print(f"{_marked(edited)}\n  {before} -> {after}")


def _marked(edited: EditedText) -> str:
    """The text with [old -> new] at its edits."""
    text = edited.text
    for edit in reversed(edited.edits):
        new = text[edit.start : edit.end]
        space = " " if new.endswith(" ") else ""
        text = f"{text[: edit.start]}[{edit.before or '+'} -> {new.strip()}]{space}{text[edit.end :]}"
    return text


def _readings(
    predictor: Any, texts: list[str], result: TextAttackResult, rows: Any
) -> list[tuple[str, EditedText, str]]:
    """The prediction of each text, the text after the attack, and its prediction then."""
    before = predictor.predict([texts[n] for n in rows])
    after = predictor.predict([result.inputs[n].text for n in rows])
    return [
        (predictor.text(old), result.inputs[n], predictor.text(new))
        for n, old, new in zip(rows, before, after, strict=True)
    ]


def _paragraphs(predictor: Any, texts: list[str], result: TextAttackResult) -> list[EditedParagraph]:
    """The first texts that the attack broke, word by word."""
    paragraphs = []
    for before, edited, after in _readings(predictor, texts, result, _newly_broken(result)[:_DRAWN]):
        words: list[tuple[str, str | None]] = []
        end = 0
        for edit in edited.edits:
            words += [(word, None) for word in edited.text[end : edit.start].split()]
            words.append((edited.text[edit.start : edit.end].strip(), edit.before))
            end = edit.end
        words += [(word, None) for word in edited.text[end:].split()]
        paragraphs.append(EditedParagraph(f"{before} → {after}".replace("\t", ", "), words))
    return paragraphs


def _as_json(
    options: "AttackOptions",
    name: str,
    loaded: LoadedRun,
    texts: list[str],
    result: TextAttackResult,
    split: str,
    seconds: float,
) -> dict[str, Any]:
    readings = _readings(loaded.predictor, texts, result, range(len(texts)))
    examples = [
        {
            "text": text,
            "attacked": edited.text,
            "prediction": before,
            "attacked_prediction": after,
            "was_broken": bool(result.was_broken[n]),
            "broken": bool(result.broken[n]),
            "edits": [
                {"start": edit.start, "before": edit.before, "after": edited.text[edit.start : edit.end]}
                for edit in edited.edits
            ],
            "queries": int(result.queries[n]),
        }
        for n, (text, (before, edited, after)) in enumerate(zip(texts, readings, strict=True))
    ]
    return {
        "run": str(options.run),
        "weights": loaded.weights,
        "step": loaded.step,
        "split": split,
        "texts": len(texts),
        "attack": name,
        "seed": options.seed,
        **_numbers(result),
        "examples": examples,
        "warnings": list(result.warnings),
        "seconds": seconds,
    }

"""Every reader of text files: Windows line ends, byte order marks, empty last lines, one class, and twenty scripts.

A file is read right, or refused in one sentence that names it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tasks.own_files import FILE_TASKS, FOLDERS, MEDIA, OTHERS, RUNNING_TEXT, TEXTS
from tests.tasks.test_changed_files import Spy

from regard.tasks.registry import TASKS

# the first words of article 1 of the Universal Declaration of Human Rights, or the name of the language
SCRIPTS = {
    "Arabic": "يولد جميع الناس",
    "Armenian": "Բոլոր մարդիկ ծնվում",
    "Bengali": "সমস্ত মানুষ স্বাধীনভাবে",
    "Chinese": "人人生而自由",
    "Cyrillic": "Все люди рождаются",
    "Devanagari": "सभी मनुष्यों को",
    "Ethiopic": "የሰው ልጅ ሁሉ",
    "Georgian": "ყველა ადამიანი იბადება",
    "Greek": "Όλοι οι άνθρωποι",
    "Gujarati": "પ્રતિષ્ઠા અને અધિકારોની",
    "Hangul": "모든 인간은 태어날",
    "Hebrew": "כָּל בְּנֵי אָדָם",
    "Japanese": "すべての人間は、生まれ",
    "Kannada": "ಎಲ್ಲಾ ಮಾನವರೂ",
    "Khmer": "មនុស្សទាំងអស់",
    "Latin, decomposed": "Tous les e\u0302tres ne\u0301s",
    "Malayalam": "മനുഷ്യരെല്ലാവരും",
    "Sinhala": "සියලු මනුෂ්‍යයෝ",
    "Tamil": "மனிதப் பிறவியினர்",
    "Telugu": "ప్రతిపత్తిస్వత్వముల విషయమున",
    "Thai": "มนุษย์ทั้งหลายเกิดมา",
    "Tibetan": "འགྲོ་བ་མིའི་རིགས་",
}


COUNT = 2 * len(SCRIPTS)
PHRASES = [*enumerate([*SCRIPTS.values()] * 2)]


FORMS: dict[str, Callable[[str], bytes]] = {
    "Windows line ends and a byte order mark": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
    "empty last lines": lambda text: (text + "\n\n\n").encode(),
    "no last line end": lambda text: text.rstrip("\n").encode(),
}
text_tasks = pytest.mark.parametrize("name", TEXTS)


def prepared(name: str, folder: Path, content: bytes) -> Any:
    """The training problem of a small run on a file of this content, whose run is new."""
    folder.mkdir(parents=True)
    if name in MEDIA:
        MEDIA[name](folder, range(COUNT))
    path = folder / ("train.json" if name == "read" else "train.tsv")
    path.write_bytes(content)
    (folder / "run").mkdir()
    return TASKS[name].of(train=path, **FILE_TASKS[name].options).load().prepare(folder / "run", new=True)


def test_no_task_is_left_out() -> None:
    assert {*TEXTS, *FOLDERS, *OTHERS} == set(TASKS)


@text_tasks
def test_the_form_of_a_file_does_not_matter(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy, text = Spy(monkeypatch), TEXTS[name](PHRASES, "ab")
    prepared(name, tmp_path / "plain", text.encode())
    plain = [sorted(part) for part in spy.contents]  # type: ignore[type-var]
    different = []
    for form, write in FORMS.items():
        spy.contents.clear()
        prepared(name, tmp_path / form, write(text))
        # empty lines are a part of running text
        if [sorted(part) for part in spy.contents] != plain and (  # type: ignore[type-var]
            name not in RUNNING_TEXT or form != "empty last lines"
        ):
            different.append(form)
    assert not different


@text_tasks
def test_scripts_are_read_and_validated(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    problem = prepared(name, tmp_path / "scripts", TEXTS[name](PHRASES, "ab").encode())
    contents = "\n".join(each for part in spy.contents for each in part if isinstance(each, str))
    missing = [script for script, each in SCRIPTS.items() if each.split()[0] not in contents]
    # pictures and sounds are known by themselves
    assert not missing or name in MEDIA
    scores = problem.validate(problem.build_model().eval())
    assert scores.main in scores.values


# an answer, a tag or a class for all examples leaves nothing to learn; a value of a slot does not
ONE_CLASS = {
    "answer": "has one answer, 'a', so there is nothing to learn",
    "classify-text": "has one class, 'a', so there is nothing to learn; give texts of another class as well",
    "match": "has one class, 'a', so there is nothing to learn",
    "tag": "has one tag, 'a', so there is nothing to learn",
    "classify-clip": "holds one class, a, and there is nothing to tell apart",
    "classify-image": "holds one class, a, and there is nothing to tell apart; put images of another into a folder",
    "glimpse": "holds one class, a, and there is nothing to tell apart",
}


@pytest.mark.parametrize("name", [*TEXTS, *FOLDERS])
def test_one_class_is_trained_on_or_one_sentence(name: str, tmp_path: Path) -> None:
    def prepare() -> object:
        if name in TEXTS:
            return prepared(name, tmp_path / "one", TEXTS[name](PHRASES, "a").encode())
        path = FILE_TASKS[name].write(tmp_path, range(0, 40, 2))
        (tmp_path / "run").mkdir()
        return TASKS[name].of(train=path, **FILE_TASKS[name].options).load().prepare(tmp_path / "run", new=True)

    if name not in ONE_CLASS:
        assert prepare()
        return
    with pytest.raises(ValueError, match=ONE_CLASS[name]) as error:
        prepare()
    assert "\n" not in str(error.value)

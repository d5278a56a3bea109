import unicodedata
from typing import Literal

import pytest
from tests.for_each import for_each

from regard.common.word_splitting import find_phrase, split_words, whole_words
from regard.data.questions import babi
from regard.data.text import tf_idf
from regard.metrics.answers import normalize_answer

# two words or more of each script, with the marks that people write
SCRIPTS = {
    "latin": "naïve café",
    "vietnamese": "tiếng Việt đẹp",
    "greek": "Ἑλληνικὴ γλῶσσα",
    "cyrillic": "Київ її йод",
    "armenian": "հայերեն լեզու",
    "georgian": "ქართული ენა",
    "hebrew": "שָׁלוֹם עוֹלָם",
    "arabic": "مَرحَبًا بِكُم",
    "persian": "می‌خواهم بروم",
    "syriac": "ܫܠܳܡܳܐ ܥܰܠܡܳܐ",
    "thaana": "ދިވެހި ބަސް",
    "hindi": "हिन्दी में मौसम",
    "bengali": "আমি ভাত খাই",
    "punjabi": "ਪੰਜਾਬੀ ਵਿੱਚ",
    "gujarati": "ગુજરાતી ભાષા",
    "oriya": "ଓଡ଼ିଆ ଭାଷା",
    "tamil": "வணக்கம் உலகம்",
    "telugu": "తెలుగు భాష",
    "kannada": "ಕನ್ನಡ ಭಾಷೆ",
    "malayalam": "മലയാളം ഭാഷ",
    "sinhala": "සිංහල ශ්‍රී",
    "thai": "สวัสดี ครับ",
    "lao": "ສະບາຍດີ ທ່ານ",
    "khmer": "ភាសា ខ្មែរ",
    "burmese": "မြန်မာ ဘာသာ",
    "amharic": "አማርኛ ቋንቋ",
    "korean": "한국어 단어",
    "japanese": "ガギグ ことば",
    "chinese": "中文 词语",
}
HOWS = ("punctuation", "marks", "alphanumeric", "hyphenated", "spaces")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_word_of_every_script_is_whole(script: str, how: str, form: Literal["NFC", "NFD"]) -> None:
    text = unicodedata.normalize(form, SCRIPTS[script])
    words, spans = split_words(text, how)
    assert list(words) == text.split(" ")
    assert [text[start:end] for start, end in spans] == list(words)


@for_each("script", SCRIPTS)
def test_readers_and_baselines_know_the_same_words(script: str) -> None:
    text = SCRIPTS[script].lower()
    assert babi.words_of(text) == tf_idf.words_of(text) == text.split(" ")
    assert normalize_answer(SCRIPTS[script]) == text


@pytest.mark.parametrize("how", HOWS)
def test_different_words_stay_different(how: str) -> None:
    assert split_words("को", how) != split_words("की", how)


def test_the_kinds_of_words_of_latin() -> None:
    text = "Ford's e-mail, 3.5 m2_x!"
    assert split_words(text)[0] == ("Ford's", "e", "-", "mail", ",", "3.5", "m", "2", "_", "x", "!")
    assert split_words(text, "marks")[0] == ("Ford", "'", "s", "e", "-", "mail", ",", "3.5", "m", "2", "_", "x", "!")
    assert split_words(text, "alphanumeric")[0] == (
        *("Ford", "'", "s", "e", "-", "mail", ",", "3", ".", "5", "m2_x", "!"),
    )
    assert split_words(text, "hyphenated")[0] == ("Ford's", "e-mail", "3", "5", "m2_x")
    assert split_words(text, "spaces")[0] == ("Ford's", "e-mail,", "3.5", "m2_x!")


@pytest.mark.parametrize("how", ["punctuation", "marks"])
def test_no_sign_is_lost(how: str) -> None:
    text = "हाँ, नहीं! ❤️ (شكرًا؟) a\u0301-b\u0301 ٣٫٥ \u0301"
    words, _ = split_words(text, how)
    assert "".join(words) == text.replace(" ", "")


def test_a_sign_keeps_its_variation_selector() -> None:
    assert split_words("a ❤️ b", "alphanumeric")[0] == ("a", "❤️", "b")


def test_an_article_with_a_mark_is_no_article() -> None:
    assert normalize_answer("à la carte") == "à la carte"
    assert normalize_answer(unicodedata.normalize("NFD", "à la carte")) == unicodedata.normalize("NFD", "à la carte")
    assert normalize_answer("The cat, a dog") == "cat dog"


def test_whole_words() -> None:
    assert whole_words("no").sub("_", "no, I do not know") == "_, I do not know"
    assert whole_words("क").search("की") is None


@for_each(
    ("phrase", "text", "place"),
    [
        ("no", "Tom did not know.", None),
        ("no", "Not now. No!", (9, 11)),
        ("one", "Someone took one.", (13, 16)),
        ("someone", "Someone took it", (0, 7)),
        ("क", "की", None),
        ("cafe", "cafe\u0301", None),
        ("$5", "US$5 a day", (2, 4)),
        ("(so)", "and (so)on", (4, 8)),
        ("red car", "the Red Cars", None),
    ],
)
def test_find_phrase(phrase: str, text: str, place: tuple[int, int] | None) -> None:
    assert find_phrase(phrase, text) == place


def test_runs_of_one_sign_and_english_clitics_are_words() -> None:
    words, _ = split_words("It 's do n't don't ... wow!!! (x.) 'house' Anna's 3.5%.", "runs")
    right = "It|'s|do|n't|don't|...|wow|!!!|(|x|.|)|'|house|'|Anna's|3.5|%|."
    assert words == tuple(right.split("|"))

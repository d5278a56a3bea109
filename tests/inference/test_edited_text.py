"""Edits of a text keep their places, and the text before them."""

from regard.inference.edited_text import EditedText, TextEdit


def test_edits_move_with_the_text_before_them() -> None:
    text = EditedText("a good film").replace(7, 11, "book")
    assert text.replace(2, 6, "fine") == EditedText("a fine book", (TextEdit(2, 6, "good"), TextEdit(7, 11, "film")))
    longer = text.replace(2, 6, "very bad")
    assert longer.edits == (TextEdit(2, 10, "good"), TextEdit(11, 15, "film"))
    assert longer.text == "a very bad book"
    assert longer.original == "a good film"


def test_a_place_that_is_edited_again_keeps_its_first_text() -> None:
    text = EditedText("a good film").replace(2, 6, "goood").replace(2, 7, "god")
    assert text == EditedText("a god film", (TextEdit(2, 5, "good"),))
    assert text.is_edited(0, 3)
    assert not text.is_edited(0, 2)
    assert not text.is_edited(5, 9)
    assert text.replace(2, 5, "good") == EditedText("a good film")


def test_inserted_words() -> None:
    text = EditedText("film").replace(0, 0, "so so ")
    assert text.replace(6, 10, "book").edits == (TextEdit(0, 6, ""), TextEdit(6, 10, "film"))
    assert text.original == "film"

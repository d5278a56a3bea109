"""Values in words: the longest first, other spellings, whole words only."""

from regard.data.tracking.dialogue import Ontology, SystemAct
from regard.data.tracking.mentions import MentionFinder

FINDER = MentionFinder(
    Ontology(
        {"food": ("indian", "north indian"), "area": ("north", "centre"), "hotel-stars": ("4",), "stay": ("4",)},
        ("hotel-phone", "address"),
    )
)


def test_values() -> None:
    assert FINDER.informs("North Indian food in the city centre!") == {"food": "north indian", "area": "centre"}
    assert FINDER.informs("Northern Indians") == {"area": "north", "food": "indian"}
    assert FINDER.informs("the inner centres, nor a northwesterly indianapolis") == {"area": "centre"}
    # one phrase may be a value of two slots
    assert [(each.slot, each.start, each.end) for each in FINDER.values("for 4")] == [
        ("hotel-stars", 1, 2),
        ("stay", 1, 2),
    ]
    assert FINDER.informs("for 5") == {}
    assert FINDER.informs("indian, no wait, north indian") == {"food": "north indian"}
    named = SystemAct("area"), SystemAct("food", "indian"), SystemAct("area", "north")
    assert tuple(FINDER.acts("Which area? Indian, indian or north?")) == named


def test_names() -> None:
    assert [each.slot for each in FINDER.names("The address and the phone number?")] == ["address", "hotel-phone"]
    assert FINDER.names("Hello.") == []

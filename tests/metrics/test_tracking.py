"""Metrics of states: whole states, dontcare as a value, requests."""

from regard.metrics.tracking import TurnLabels, states, tracking_scores

NONE: frozenset[str] = frozenset()


def turn(requests: str = "", **informs: str) -> TurnLabels:
    return TurnLabels(informs, frozenset(requests.split()))


def test_states_accumulate() -> None:
    turns = [turn(food="thai"), turn(), turn(area="north", food="dontcare")]
    assert states(turns) == [{"food": "thai"}, {"food": "thai"}, {"food": "dontcare", "area": "north"}]
    # a state that is given holds, whatever was informed
    assert states([TurnLabels({"food": "thai"}, NONE, {})]) == [{}]


def test_scores_by_hand() -> None:
    right = [[turn(food="thai"), turn("phone"), turn(area="dontcare")], [turn()]]
    found = [[turn(food="greek"), turn("phone", food="thai"), turn()], [turn("phone")]]
    scores, intervals = tracking_scores(found, right)
    # the mistake of the first turn is corrected in the second; a missing dontcare is a mistake
    assert scores == {"joint goal": 50.0, "turn inform": 25.0, "turn request": 75.0}
    assert all(low <= scores[name] <= high for name, (low, high) in intervals.items())
    assert set(tracking_scores(right, right)[0].values()) == {100.0}


def test_nothing_is_scored_where_nothing_is_asked_for() -> None:
    scores, intervals = tracking_scores([[turn("phone", food="thai")]], [[turn(food="thai")]])
    assert list(scores) == list(intervals) == ["joint goal", "turn inform"]

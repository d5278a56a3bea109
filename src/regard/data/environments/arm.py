"""Arm: an arm with two joints must reach the named object among several."""

import numpy as np
from numpy.typing import NDArray

from regard.data.environments.base import Actions, ObjectEnvironment, ObjectLayout, Outcome, State, one_hot

_COLOURS, _SHAPES = ("red", "green", "blue"), ("disc", "cube", "cone")
_KINDS = len(_COLOURS) * len(_SHAPES)
_DESCRIPTION = len(_COLOURS) + len(_SHAPES)
# radians per step of a joint; the distance from the hand at which an object is reached; the links are 1 long
_TURN, _NEAR = 0.3, 0.2
# distances of objects from the shoulder
_NEAREST, _FARTHEST = 0.6, 1.8
# pixels per side of a picture, and distance from the hand to its edge
_SIDE, _EDGE = 33, 3.0


class Arm(ObjectEnvironment):
    """A hand at the end of two links, `objects` that differ in colour or shape around the shoulder, and a name.

    An action turns both joints. What is seen is seen from the hand, along its link: the angle of the elbow, the name,
    and each object with its offset from the hand, squashed by tanh. An episode ends at the named object, which is worth
    0.5; approaching it is worth 1 / 8 per link. Other objects are in nobody's way.
    """

    name = "arm"
    continuous = True

    def __init__(self, objects: int = 4) -> None:
        if not 1 <= objects <= _KINDS:
            raise ValueError(f"objects must be 1 to {_KINDS}, one per colour and shape, got {objects}; try objects=4")
        self.objects = ObjectLayout(2, _DESCRIPTION, objects, 2)
        self.observation = (self.objects.size,)
        self.action_names = ("shoulder", "elbow")
        self.longest = 24
        self.num_draws = _KINDS + 2 * objects + 3
        # at most 0.125 · (2 + 1.8 − 0.2) without the named object, at least 0.5 − 0.125 · 0.2 with it
        self.goal = 0.47

    def begin(self, draws: NDArray[np.float64]) -> State:
        count = self.objects.num_objects
        order, angles, distances, rest = np.split(draws, np.cumsum([_KINDS, count, count]), axis=1)
        # one object per sector around the shoulder
        angles = 2 * np.pi * (np.arange(count) + 0.15 + 0.7 * angles) / count
        distances = _NEAREST + (_FARTHEST - _NEAREST) * distances
        joints = np.stack([2 * np.pi * rest[:, 0], np.pi * (2 * rest[:, 1] - 1)], 1)
        places = np.stack([distances * np.cos(angles), distances * np.sin(angles)], -1)
        return {
            "joints": joints,
            "kinds": order.argsort(axis=1)[:, :count],
            "places": places,
            "named": (rest[:, 2] * count).astype(np.int64),
        }

    def _offsets(self, state: State) -> NDArray[np.float64]:  # -> "n o 2"
        """The objects from the hand: along its link, and to the left of it."""
        shoulder, hand = state["joints"][:, 0], state["joints"].sum(1)
        along = np.stack([np.cos(hand), np.sin(hand)], -1)
        at = np.stack([np.cos(shoulder), np.sin(shoulder)], -1) + along
        left = np.stack([-along[:, 1], along[:, 0]], -1)
        offsets: NDArray[np.float64] = (state["places"] - at[:, None]) @ np.stack([along, left], -1)
        return offsets

    def observe(self, state: State) -> NDArray[np.float32]:
        n = len(state["named"])
        elbow = state["joints"][:, 1]
        own = np.stack([np.cos(elbow), np.sin(elbow)], -1) / 2 + 0.5
        kinds = np.concatenate(
            [one_hot(state["kinds"] // 3, len(_COLOURS)), one_hot(state["kinds"] % 3, len(_SHAPES))], -1
        )
        offsets = np.tanh(self._offsets(state)) / 2 + 0.5
        objects = np.concatenate([kinds, offsets], -1).reshape(n, -1)
        return np.concatenate([own, kinds[np.arange(n), state["named"]], objects], 1, dtype=np.float32)

    def act(self, state: State, actions: Actions, t: NDArray[np.int64]) -> Outcome:
        before = self._distances(state)
        state["joints"] = state["joints"] + _TURN * np.clip(actions, -1, 1)
        after = self._distances(state)
        reached = after < _NEAR
        return (0.125 * (before - after) + 0.5 * reached).astype(np.float32), reached

    def _distances(self, state: State) -> NDArray[np.float64]:  # -> "n"
        """The distance of the hand from the named object."""
        offsets = self._offsets(state)[np.arange(len(state["named"])), state["named"]]
        distances: NDArray[np.float64] = np.hypot(offsets[:, 0], offsets[:, 1])
        return distances

    def named_object(self, observation: NDArray[np.float32]) -> int:
        _, name, objects = self.objects.split(observation)
        return int((objects[:, :_DESCRIPTION] @ name).argmax())

    def object_names(self, observation: NDArray[np.float32]) -> tuple[str, ...]:
        return tuple(_in_words(row) for row in self.objects.split(observation)[2])

    def describe(self, observation: NDArray[np.float32]) -> str:
        _, name, objects = self.objects.split(observation)
        along, left = _unsquashed(objects[self.named_object(observation), _DESCRIPTION:])
        return f"{_in_words(name)} at {along:+.1f}, {left:+.1f}"

    def picture(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """The hand in the middle, its link to the left; the named object is the brightest."""
        own, _, objects = self.objects.split(observation)
        cosine, sine = own * 2.0 - 1.0
        frame = np.zeros((_SIDE, _SIDE), np.float32)
        for share in np.linspace(0.0, 1.0, 2 * _SIDE):
            for at in ((-share, 0.0), (-1.0 - share * cosine, share * sine)):
                frame[_pixel(np.array(at))] = 0.35
        for n, row in enumerate(objects):
            y, x = _pixel(_unsquashed(row[_DESCRIPTION:]))
            brightness = 1.0 if n == self.named_object(observation) else 0.6
            frame[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2] = brightness
        return frame

    def object_pixel(self, observation: NDArray[np.float32], index: int) -> tuple[int, int]:
        return _pixel(_unsquashed(self.objects.split(observation)[2][index, _DESCRIPTION:]))


def _in_words(description: NDArray[np.float32]) -> str:
    colour, shape = description[: len(_COLOURS)].argmax(), description[len(_COLOURS) : _DESCRIPTION].argmax()
    return f"{_COLOURS[colour]} {_SHAPES[shape]}"


def _unsquashed(offset: NDArray[np.float32]) -> NDArray[np.float64]:  # "2" -> "2"
    numbers: NDArray[np.float64] = np.arctanh(np.clip(2.0 * offset.astype(np.float64) - 1.0, -0.9999, 0.9999))
    return numbers


def _pixel(offset: NDArray[np.float64]) -> tuple[int, int]:
    """The row and column of an offset, at the edge if it is farther."""
    column, row = np.clip((offset * (1, -1) / _EDGE + 1) / 2, 0, 1) * (_SIDE - 1)
    return round(row), round(column)

"""Loops end between two steps once nobody waits, and only within the work that is cancelled."""

import threading

import pytest

from regard.common.cancellation import Cancellation, cancelled_if, check_cancelled


def test_work_is_cancelled_inside_and_nowhere_else() -> None:
    check_cancelled()
    has_left = threading.Event()
    with cancelled_if(has_left.is_set):
        check_cancelled()
        has_left.set()
        with pytest.raises(Cancellation, match="nobody waits for this work any more"):
            check_cancelled()
        with cancelled_if(lambda: False):
            check_cancelled()
        other = threading.Thread(target=check_cancelled)  # an error in a thread fails the test
        other.start()
        other.join()
    check_cancelled()

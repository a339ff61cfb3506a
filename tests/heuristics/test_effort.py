"""The clock of work: it counts, it nests, and it is carried to other threads."""

import threading

from stagepack.heuristics import effort


def test_counts_from_the_begin_of_a_run() -> None:
    with effort.counting(10):
        effort.spend(3)
        assert (effort.spent(), effort.left()) == (3, 7)
        with effort.counting():
            effort.spend(5)
            assert (effort.spent(), effort.left()) == (5, float("inf"))
        assert effort.spent() == 3
        effort.spend(9)
        assert effort.left() == 0
    assert effort.left() == float("inf")


def test_what_a_block_took_can_be_asked_after_it() -> None:
    effort.spend(7)
    with effort.counting() as spent:
        effort.spend(3)
        with effort.counting() as within:
            effort.spend(5)
        assert (spent(), within()) == (3, 5)
    effort.spend(9)
    assert (spent(), within()) == (3, 5)


def test_what_is_carried_counts_where_it_came_from() -> None:
    with effort.counting():
        carried = effort.carried(lambda: effort.spend(2))
        for function in (carried, lambda: effort.spend(3)):
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()
        assert effort.spent() == 2

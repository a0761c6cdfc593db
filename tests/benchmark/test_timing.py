"""Interleaved timing, on a clock that the test turns."""

import pytest

from ringconv.benchmark.timing import Timing, interleave


class Clock:
    """Stands still but for the calls made with it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def call(self, name: str, durations):
        durations = iter(durations)

        def work() -> None:
            self.log.append(name)
            self.now += next(durations)

        return work


def test_median_and_percentiles_of_known_durations():
    clock = Clock()
    calls = {"slow": clock.call("slow", range(10, 110, 10)), "fast": clock.call("fast", range(1, 11))}
    timings = interleave(calls, budget=0, rounds=10, warmup=0, clock=clock)
    assert timings["fast"].seconds == tuple(range(1, 11))
    assert timings["fast"].median == 5.5
    assert timings["fast"].percentile(20) == pytest.approx(2.8)
    assert timings["fast"].percentile(80) == pytest.approx(8.2)
    assert timings["slow"].median / timings["fast"].median == 10


def test_percentiles_do_not_depend_on_the_order():
    assert Timing((5.0, 1.0, 3.0)).median == 3.0


def test_each_round_runs_every_call_once_in_changing_order():
    clock = Clock()
    names = ["a", "b", "c", "d"]
    interleave({name: clock.call(name, [1.0] * 20) for name in names}, budget=0, rounds=20, warmup=0, clock=clock)
    rounds = [clock.log[start : start + 4] for start in range(0, 80, 4)]
    assert all(sorted(one) == names for one in rounds)
    assert len({tuple(one) for one in rounds}) > 5


@pytest.mark.parametrize(("seeds", "equal"), [((3, 3), True), ((3, 4), False)])
def test_the_seed_gives_the_order(seeds, equal):
    logs = []
    for seed in seeds:
        clock = Clock()
        interleave(
            {name: clock.call(name, [1.0] * 9) for name in "abc"}, budget=0, rounds=9, warmup=0, seed=seed, clock=clock
        )
        logs.append(clock.log)
    assert (logs[0] == logs[1]) is equal


@pytest.mark.parametrize(
    ("budget", "rounds", "most_rounds", "done"),
    [(0.0, 3, 9, 3), (5.0, 3, 9, 5), (4.5, 3, 9, 5), (100.0, 3, 9, 9)],
    ids=["least", "budget", "started within budget", "most"],
)
def test_number_of_rounds(budget, rounds, most_rounds, done):
    clock = Clock()
    calls = {"a": clock.call("a", [1.0] * 20)}
    timings = interleave(calls, budget=budget, rounds=rounds, most_rounds=most_rounds, warmup=0, clock=clock)
    assert len(timings["a"].seconds) == done


def test_warm_up_is_not_timed():
    clock = Clock()
    timings = interleave({"a": clock.call("a", [50.0, 50.0, 1.0, 1.0])}, budget=0, rounds=2, warmup=2, clock=clock)
    assert timings["a"].seconds == (1.0, 1.0)


def test_what_is_returned_is_freed_within_its_own_time():
    clock = Clock()

    class Slow:
        def __del__(self) -> None:
            clock.now += 7.0

    timings = interleave({"a": Slow}, budget=0, rounds=2, warmup=0, clock=clock)
    assert timings["a"].seconds == (7.0, 7.0)


def test_at_least_one_round():
    with pytest.raises(ValueError, match="rounds must be within 1 and most_rounds=200, got 0"):
        interleave({}, budget=1, rounds=0)

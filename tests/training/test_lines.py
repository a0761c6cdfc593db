"""How a run goes, in lines."""

from ringconv.training import Lines, Moment

MOMENT = Moment(3, 20, 1, 5, 0.5, 80.0, "accuracy", 1000.0, 90.0)


def test_every_note_and_not_more_than_a_line_in_so_many_seconds(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    written = []
    lines = Lines(written.append, seconds=10)
    lines.note("It begins.")
    for now in (5.0, 10.0, 19.0):  # noqa: B007 (time.monotonic reads it)
        lines.trained(MOMENT)
    now = 20.0
    lines.testing("turned", 7, 36)
    assert written == [
        "It begins.",
        "epoch 1/5: loss 0.5000, accuracy 80.0%, 1,000 images/s, 1.5 minutes left",
        "turned: 7 of 36",
    ]

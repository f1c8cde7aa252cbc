"""The picture of the demonstration: heights in proportion, gaps visible, everything inside the frame."""

from safeproducer.cli.demo.display import column, histogram, timeline


def test_gaps_and_peaks_are_visible() -> None:
    """Nothing at all has a character of its own, one record another, and the largest count the highest."""
    assert timeline([0, 1, 16, 64], 64, ascii_only=False) == "·▁▄█"
    assert timeline([0, 1, 16, 64], 64, ascii_only=True) == " .=@"
    assert timeline([0, 0], 0, ascii_only=False) == "··"


def test_moments_fall_into_equal_stretches() -> None:
    """The end belongs to the last one, and so does what came later."""
    assert histogram([0.0, 0.9, 1.0, 4.0, 9.0], 0.0, 4.0, 4) == [2, 1, 0, 2]
    assert column(-1.0, 0.0, 4.0, 4) == 0
    assert column(1.0, 1.0, 1.0, 4) == 0

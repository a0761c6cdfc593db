"""``ringconv budget`` and ``ringconv methods-page``."""

import pytest

from ringconv.commands._terminal import UsageError
from ringconv.commands.baselines import budget, methods_page


def test_what_the_budget_refuses(tmp_path):
    with pytest.raises(UsageError, match=r"only must name some of resnet18, .*; got resnet19"):
        budget(tmp_path / "data.npz", tmp_path / "out", only=("resnet19",))
    with pytest.raises(UsageError, match="teraflops must be above 0"):
        budget(tmp_path / "data.npz", tmp_path / "out", teraflops=-1)
    with pytest.raises(UsageError, match=r"missing\.npz"):
        budget(tmp_path / "missing.npz", tmp_path / "out", only=("resnet18",))


def test_the_page_is_written(tmp_path, capsys):
    methods_page(tmp_path / "methods.md", tmp_path / "results")
    assert "Written:" in capsys.readouterr().out
    assert (tmp_path / "methods.md").read_text().startswith("# The methods")

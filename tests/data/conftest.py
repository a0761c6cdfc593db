import pytest


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path_factory, monkeypatch):
    """What a test decodes must not be found by the next one, nor in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RINGCONV_CACHE", str(folder))
    monkeypatch.delenv("RINGCONV_DATA", raising=False)
    return folder

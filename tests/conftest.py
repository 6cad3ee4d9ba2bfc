import pytest

from deployment import serve


@pytest.fixture(scope="session")
def baton(tmp_path_factory):
    """One plain deployment that all tests share which do not need flags of their own."""
    with serve(tmp_path_factory.mktemp("serve")) as deployment:
        yield deployment

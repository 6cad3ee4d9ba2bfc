import pytest

from deployment import serve


@pytest.fixture(scope="session")
def baton(tmp_path_factory):
    """One plain deployment that all tests share which do not need flags of their own."""
    with serve(tmp_path_factory.mktemp("serve")) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def single(tmp_path_factory):
    """One engine that does everything and remembers nothing: what it answers is what all others must."""
    with serve(tmp_path_factory.mktemp("single"), "--prefill", "0", "--enable-prefix-cache=false") as deployment:
        yield deployment

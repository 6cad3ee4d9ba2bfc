"""What the compiler must have done."""

import subprocess

from deployment import BINARY


def test_kernels_are_compiled_for_their_instructions():
    """A vector instruction that is a function of its own is called by a kernel that was not inlined where its instruction set is
    known: it takes twenty times as long."""
    names = subprocess.run(["nm", "-C", BINARY], capture_output=True, text=True, check=True).stdout.splitlines()
    assert any("run_with_tiles" in name for name in names), "the binary has no names"
    assert not [name for name in names if "::_mm512_" in name]

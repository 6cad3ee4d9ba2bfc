"""The command `baton`. Engines are started by running this file, for which nothing of the package has to be loaded."""

import os
import signal
import sys

if __package__:
    from baton import _baton
else:
    # Not there by itself under PYTHONSAFEPATH.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import _baton  # type: ignore[import-not-found, no-redef]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _baton.embed(sys.executable, __file__)
    sys.exit(_baton.main(["baton", *sys.argv[1:]]))


if __name__ == "__main__":
    main()

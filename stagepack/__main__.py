"""``python -m stagepack`` and the ``stagepack`` command."""

import gc
import sys


def main() -> None:
    """Start the command line; Ctrl-C while it is still loading ends without a word."""
    gc.disable()  # what is loaded stays: looking for garbage in it takes a tenth of a short run
    try:
        from stagepack.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()

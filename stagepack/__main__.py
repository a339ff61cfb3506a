"""``python -m stagepack`` and the ``stagepack`` command."""

import sys


def main() -> None:
    """Start the command line; Ctrl-C while it is still loading ends without a word."""
    try:
        from stagepack.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

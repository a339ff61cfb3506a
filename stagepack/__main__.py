"""``python -m stagepack`` is the command line."""

from stagepack.cli import main

main()

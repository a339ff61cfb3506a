"""The name that version 0.1 has for :mod:`.execution.execute`."""

from stagepack.instances.phases.execution.execute import Execution, Token, execute

__all__ = ["Execution", "Token", "execute"]

"""What 0.1 knows by this name: programs of phases are executed in :mod:`.execution.execute`."""

from stagepack.instances.phases.execution.execute import Execution, Token, execute

__all__ = ["Execution", "Token", "execute"]

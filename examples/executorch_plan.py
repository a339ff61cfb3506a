"""Mobile: a PyTorch model to an ExecuTorch program whose tensors Stagepack places."""

import torch
from executorch import exir

from stagepack.integrations.executorch import plan

model, x = torch.nn.Transformer(32, 4, 1, 1, 64, batch_first=True).eval(), torch.randn(1, 8, 32)
suite = exir.memory_planning.MemoryPlanningAlgorithmSuite(algo_list=[plan])
passed = exir.passes.MemoryPlanningPass(memory_planning_algo=suite)
config = exir.ExecutorchBackendConfig(memory_planning_pass=passed)
program = exir.to_edge(torch.export.export(model, (x, x))).to_executorch(config)
open("model.pte", "wb").write(program.buffer)
print(program.executorch_program.execution_plan[0].non_const_buffer_sizes[1], "bytes of tensors")

"""PyTorch, torchtitan and Accelerate: allocations, schedules, the modules of stages."""

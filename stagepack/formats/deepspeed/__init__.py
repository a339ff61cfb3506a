"""DeepSpeed: its PipelineModule."""

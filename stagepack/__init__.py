"""Stagepack: optimal pipeline stages, schedules and memory maps, with certificates."""

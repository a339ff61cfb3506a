"""vLLM and SGLang: how many layers each rank serves."""

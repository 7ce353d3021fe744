"""The backends on torch and transformers, for GPUs, or for CPUs in a separate environment."""

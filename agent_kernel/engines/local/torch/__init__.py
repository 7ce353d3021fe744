"""The backends on torch and transformers (GPU, or CPU in an environment of their own)."""

"""Notebooks and kernels: bindings, jobs in kernels, sidecar files."""

"""The backend on openvino-genai (CPU)."""

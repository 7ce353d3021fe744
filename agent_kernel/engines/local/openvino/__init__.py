"""The backend that runs models with openvino-genai on CPUs."""

"""Former import paths; the modules forward to where they live now."""

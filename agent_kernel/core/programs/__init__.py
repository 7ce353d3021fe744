"""Corrects programs that a model writes, and defines the outcome of running one on trial. The modules do no I/O."""

"""Describes files to the model from the beginning of their content. Only text formats: the formats that need a library
are described in a kernel, or in a process without rights."""

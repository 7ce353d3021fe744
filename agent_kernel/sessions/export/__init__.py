"""Sessions as documents: export, import, validation, and removal of unsafe content from documents of other people. The
formats are in ``formats``."""

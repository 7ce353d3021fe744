"""Sessions as documents: export, import, validation and sanitizing of foreign documents. Formats are in ``formats``."""

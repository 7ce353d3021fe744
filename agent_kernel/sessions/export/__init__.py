"""Sessions as documents: export, import, validation and cleaning of documents from elsewhere."""

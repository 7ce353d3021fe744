"""What a cell shows: text, tables, media, errors."""

-- Filled by 0003's owner: the text of what people and models said, and its index.
CREATE TABLE search_placeholder (namespace TEXT, session TEXT);

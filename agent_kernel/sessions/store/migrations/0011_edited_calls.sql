-- The SHA-256 of the text that a person wrote in place of the proposed one when they approved a call; empty: unchanged.

ALTER TABLE questions ADD COLUMN edited TEXT NOT NULL DEFAULT '';

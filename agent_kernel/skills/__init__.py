"""Skills: folders with a SKILL.md that tells a model how to do something, kept in versions and mounted for a turn."""

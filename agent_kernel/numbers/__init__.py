"""The numbers of an answer, and where in the outputs of tools they come from. Pure; standard library only."""

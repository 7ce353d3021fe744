"""Parses the words after the name of an ``%agent`` command."""

from __future__ import annotations

import shlex

from agent_kernel.notebook.kernel.one_line_errors import AgentError

FLAGS = ("--json", "--yes", "--use", "--none")


class CommandArguments:
    """The parsed arguments of a command: flags, at most one option with a value, and the remaining words."""

    def __init__(self, line: str, option: str = "", extra_flags: tuple[str, ...] = ()) -> None:
        """Parse ``line``. ``option`` is the option that takes a value, and ``extra_flags`` are flags that this
        command accepts in addition to those of every command. Raises AgentError for an unclosed quote, an unknown
        flag or an option without its value."""
        words = split_words(line)
        self.option = ""
        if option and option in words:
            index = words.index(option)
            if index + 1 == len(words):
                raise AgentError(f"{option} needs a value.")
            self.option = words.pop(index + 1)
            words.pop(index)
        allowed_flags = (*FLAGS, *extra_flags)
        self.flags = {word for word in words if word in allowed_flags}
        self.words = [word for word in words if word not in allowed_flags]
        unknown = [word for word in self.words if word.startswith("--")]
        if unknown:
            raise AgentError(f"this command has no option {unknown[0]}; %agent help lists the options.")

    @property
    def text(self) -> str:
        return " ".join(self.words)


def split_words(line: str) -> list[str]:
    """Split a line as a shell does. Raises AgentError for an unclosed quote."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise AgentError(f"the arguments {line!r} cannot be read: {error}.") from None

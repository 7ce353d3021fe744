"""Defines the two profiles, which determine the files that code sees in addition to those that Python needs.
``developer`` adds this machine's tools, toolchains and their variables; ``restricted`` adds nothing.

The server determines these files and variables from its own environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.jail import visible_paths

ROOTS = (
    *("/opt", "/home/linuxbrew/.linuxbrew", "/run/current-system/sw"),
    *("~/.pyenv", "~/.nvm", "~/.cargo/bin", "~/.rustup/toolchains", "~/.rustup/settings.toml", "~/.volta", "~/.asdf"),
    *("~/.rbenv", "~/.goenv", "~/.deno/bin", "~/.bun/bin", "~/.sdkman/candidates", "~/.juliaup", "~/.ghcup/bin"),
    *("~/.local/bin", "~/.local/share/uv/python", "~/.local/share/uv/tools", "~/.local/share/pipx/venvs"),
    *("~/.nix-profile", "~/go/bin", "~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba"),
)
OF_VARIABLES = ("CONDA_PREFIX", "VIRTUAL_ENV", "JAVA_HOME", "GOROOT", "PYENV_ROOT", "NVM_DIR", "CUDA_HOME", "R_HOME")
LISTS = ("LD_LIBRARY_PATH", "NODE_PATH")
SEEN = (*OF_VARIABLES, *LISTS, "CONDA_DEFAULT_ENV", "CUDA_PATH", "TERM")
TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
"""Environment variables that name certificate files, for networks with certificates of their own."""
NETWORK_FILES = (
    "/etc/hosts",
    "/etc/services",
    "/etc/protocols",
    "/etc/gai.conf",
    "/etc/ca-certificates",
    "/etc/pki/tls",
)
OF_HOME = {"RUSTUP_HOME": "~/.rustup", "PYENV_ROOT": "~/.pyenv", "NVM_DIR": "~/.nvm"}
"""Environment variables that toolchains need inside the jail. Without them, the toolchains would search below HOME,
which is the work directory there."""
SECRETS = frozenset({".condarc", "condarc", ".npmrc", ".netrc", ".env", "credentials", "credentials.toml"})
"""Names of files and directories that are never visible, not even directly in the directory of a toolchain."""


def readable(policy: SandboxPolicy, hidden: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the paths that are visible as a whole and read-only: those that the profile adds, network files, and those
    that the administrator added."""
    candidates = list(policy.read)
    if policy.profile == "developer":
        candidates += _tools(environ)
    if policy.network != "none":
        candidates += [*NETWORK_FILES, *(environ[name] for name in TRUST if environ.get(name))]
    home = os.path.realpath(os.path.expanduser("~"))
    covered = [os.path.realpath(path) for path in hidden]
    visible: list[str] = []
    for path in dict.fromkeys(candidates):
        real = os.path.realpath(path)
        if os.path.isabs(path) and os.path.exists(real) and visible_paths.is_shareable(real, covered, home):
            visible += _without_secrets(path)
    return [
        path for path in visible if not any(_is_covered_by(path, other) for other in (*visible_paths.SYSTEM, *visible))
    ]


def variables(policy: SandboxPolicy, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return additional environment variables for the code."""
    if policy.profile != "developer":
        return {}
    variables = {name: environ[name] for name in SEEN if environ.get(name)}
    for name, place in OF_HOME.items():
        if name not in variables and os.path.isdir(path := os.path.expanduser(place)):
            variables[name] = path
    if policy.network != "none":
        variables |= {name: environ[name] for name in TRUST if environ.get(name)}
    return variables


def path(policy: SandboxPolicy, interpreter: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Return the value of PATH: the interpreter's directory, then, with the profile ``developer``, directories of
    toolchains and the entries of the server's own PATH, then the usual directories."""
    theirs = [*_toolchains(), *_path_entries(environ)] if policy.profile == "developer" else []
    return os.pathsep.join(dict.fromkeys([str(interpreter.parent), *theirs, "/usr/local/bin", "/usr/bin", "/bin"]))


def _toolchains() -> list[str]:
    """Return the directories with the programs of the Rust toolchains. They come before rustup's proxy programs in
    PATH, because these would write beside the toolchains."""
    return sorted(map(str, Path(os.path.expanduser("~/.rustup/toolchains")).glob("*/bin")))


def _tools(environ: Mapping[str, str]) -> Iterator[str]:
    yield from (os.path.expanduser(root) for root in ROOTS)
    yield from (environ[name] for name in OF_VARIABLES if environ.get(name))
    for name in LISTS:
        yield from filter(None, environ.get(name, "").split(os.pathsep))
    for entry in _path_entries(environ):
        prefix = os.path.dirname(entry)
        whole = any(os.path.exists(os.path.join(prefix, mark)) for mark in ("pyvenv.cfg", "conda-meta"))
        yield prefix if whole else entry


def _path_entries(environ: Mapping[str, str]) -> list[str]:
    return [entry for entry in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]


def _is_covered_by(path: str, other: str) -> bool:
    return path.startswith(other + "/") or (path == other and path in visible_paths.SYSTEM)


def _without_secrets(root: str) -> list[str]:
    """Return [``root``] if the directory contains no secrets. Otherwise return the paths of its entries that are not
    secrets."""
    try:
        names = os.listdir(root)
    except OSError:
        return [root]
    if SECRETS.isdisjoint(names):
        return [root]
    return [os.path.join(root, name) for name in names if name not in SECRETS]

"""``agent-kernel serve``: runs the agent as a server for programs, and for people with a browser. The server has no
notebooks, no kernels and no file browser."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_kernel.cli import container_init, hub_service
from agent_kernel.cli.base.command import CACHE_DIR, DATA_DIR, Command, argument
from agent_kernel.cli.serve_token import HUB_TOKENS, ServeToken, forget_variables, shown_place, token
from agent_kernel.core.errors import AgentKernelError, InvalidRequest, ModelBroken, UnknownModel
from agent_kernel.core.net.deferred_iri_grammar import defer_iri_grammar
from agent_kernel.core.process_directory import ProcessDirectory
from agent_kernel.core.settings import LIMIT_FIELDS, SETTINGS, SHARED_SERVER_LIMITS, Settings
from agent_kernel.core.version import __version__
from agent_kernel.engines.local.catalog import catalog

if TYPE_CHECKING:
    from jupyter_ext.services import Services

PORT = 8888
HOST = "127.0.0.1"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ANYWHERE = frozenset({"", "0.0.0.0", "::"})
DRAIN_S = 5.0
LEVELS = ("debug", "info", "warning", "error")
MIB = 1 << 20
BODY_MIB = 64
TEMPORARY = "agent-kernel-serve-"
"""Prefix of the temporary directory of a server."""
DATA_VARIABLE = "AGENT_KERNEL_DATA_DIR"
TRAITS = ("engine", "model", "tools", "permission", "namespace", "store", "local_only", "data_dir", "cache_dir")
"""Settings that have a command-line option. Users set all other settings with environment variables or in Jupyter's
configuration files."""
STARTED = """\
agent-kernel {version} serves {url}
  in a browser {page}
  model        {model}
  OpenAI       OPENAI_BASE_URL={url}/v1     OPENAI_API_KEY=<token>
  Anthropic    ANTHROPIC_BASE_URL={url}     ANTHROPIC_API_KEY=<token>
  model names  default: its plain answers; agent/default: the agent, with the tools of this server
  token        {token_from}
  sessions     {sessions}
  each user    {limits}
  stop         Ctrl-C, or SIGTERM to process {pid}
"""


def serve(args: argparse.Namespace) -> int:
    """Run until SIGTERM or Ctrl-C and return 0; return 1 if the server cannot start."""
    if container_init.is_first_process():
        return container_init.run(lambda: _serve(args))
    return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    # The start creates many objects, of which nearly all stay. Searching them for garbage takes a tenth of the start.
    gc.disable()
    try:
        return _run(args)
    finally:
        gc.enable()


def _run(args: argparse.Namespace) -> int:
    defer_iri_grammar()
    from jupyter_ext.api import standalone_server  # loads Jupyter Server, which takes half a second

    _place(args)
    _check(args)
    sockets = standalone_server.listen(args.host, args.port)
    with contextlib.ExitStack() as closing:
        for listening in sockets:
            closing.callback(listening.close)
        private = closing.enter_context(ProcessDirectory(TEMPORARY))
        settings = _settings(args, private)
        key = HUB_TOKENS if args.hub else token(args.token_file, settings.data_dir, os.environ)
        port = int(sockets[0].getsockname()[1])
        _warn(args, key)
        config = _config(args, private, settings, port)
        server = standalone_server.HeadlessServer(
            sockets,
            config,
            key.value,
            token_place=shown_place(key),
            check=lambda services: _check_built(args, services.runtime.settings),
            announce=lambda services, query: _on_start(args, services, key, _url(args, port), query),
            waits=_wait,
            drain_s=args.drain,
        )
        return server.run()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError("must be a port number from 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds of at least 0")
    return seconds


def _base_url(text: str) -> str:
    return f"/{text.strip('/')}/".replace("//", "/")


def _place(args: argparse.Namespace) -> None:
    """Set the address at which the server listens, and its base path. Raises InvalidRequest."""
    if args.hub:
        hub_service.apply_to_options(args, hub_service.read_hub_service(os.environ))
        forget_variables(os.environ)
        os.environ.setdefault("AGENT_KERNEL_SANDBOX", "on")
    args.host = HOST if args.host is None else args.host
    args.port = PORT if args.port is None else args.port
    args.base_url = args.base_url or "/"


def _check(args: argparse.Namespace) -> None:
    """Raise InvalidRequest if an option names a path that does not exist, or if --keyfile is given without
    --certfile."""
    for name in ("certfile", "keyfile", "root"):
        path: Path | None = getattr(args, name)
        if path is not None and not (path.is_dir() if name == "root" else path.is_file()):
            raise InvalidRequest(f"--{name}: there is no {'directory' if name == 'root' else 'file'} {path}.")
    if args.keyfile and not args.certfile:
        raise InvalidRequest("The option --keyfile needs --certfile as well.")


def _settings(args: argparse.Namespace, private: Path) -> Settings:
    """Return the settings of the server. ``private`` is a temporary directory of this server. Raises InvalidRequest.

    If the default data directory cannot be written, sessions are stored only until the server ends. A relative data
    directory is made absolute, so that the extension and subprocesses use the same one.
    """
    if (chosen := getattr(args, "data_dir", None)) is not None:
        args.data_dir = chosen.absolute()
    elif at := os.environ.get(DATA_VARIABLE):
        os.environ[DATA_VARIABLE] = str(Path(at).absolute())
    os.environ.setdefault("JUPYTER_RUNTIME_DIR", str(private))
    if _is_shared(args):
        for name, limit in SHARED_SERVER_LIMITS.items():
            os.environ.setdefault(f"AGENT_KERNEL_{name.upper()}", str(limit))
    given: dict[str, Any] = {name: str(value) for name in TRAITS if (value := getattr(args, name, None)) is not None}
    settings = Settings.from_env(**given)
    if _writable(settings.data_dir) or settings.store == "memory":
        return settings
    if "data_dir" in given or os.environ.get(DATA_VARIABLE):
        raise InvalidRequest(f"{settings.data_dir} cannot be written.", hint="Use another --data-dir.")
    print(
        f"agent-kernel: {settings.data_dir} cannot be written: sessions are kept only until this server ends. "
        "Choose another directory with --data-dir.",
        file=sys.stderr,
    )
    os.environ[DATA_VARIABLE] = str(private / "data")
    return Settings.from_env(**given)


def _is_shared(args: argparse.Namespace) -> bool:
    if args.shared is not None:
        return bool(args.shared)
    return args.hub or args.host not in LOOPBACK or args.trust_proxy or bool(args.allow_host)


def _writable(directory: Path) -> bool:
    if not directory.is_absolute():  # the home directory is unknown
        return False
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _config(args: argparse.Namespace, private: Path, settings: Settings, port: int) -> dict[str, dict[str, Any]]:
    if args.root is None:
        (private / "root").mkdir()
    traits = {name: getattr(args, name) for name in TRAITS if getattr(args, name, None) is not None}
    server = {
        "ip": args.host,
        "port": port,
        "base_url": args.base_url,
        "root_dir": str((args.root or private / "root").absolute()),
        "allow_root": True,
        "open_browser": False,
        "reraise_server_extension_failures": True,
        "trust_xheaders": args.trust_proxy,
        "max_body_size": max(BODY_MIB, settings.upload_mb + 1) * MIB,
        "log_level": getattr(logging, args.log_level.upper()),
    }
    if args.hub:
        # The hub's proxy forwards the Host header of the client, so any value is accepted. A page of another site gains
        # nothing from that: this server reads no cookie, and such a page has no token.
        server |= {"identity_provider_class": hub_service.LOGIN, "allow_remote_access": True}
    if args.allow_host:
        server["local_hostnames"] = ["localhost", *args.allow_host]
    if args.certfile:
        server |= {"certfile": str(args.certfile), "keyfile": str(args.keyfile or "")}
    agent = {name: str(value) if isinstance(value, Path) else value for name, value in traits.items()}
    agent["log_level"] = server["log_level"]
    return {"ServerApp": server, "AgentKernel": agent}


def _warn(args: argparse.Namespace, key: ServeToken) -> None:
    if args.host in LOOPBACK:
        return
    if key.short and not args.hub:
        risk = "the token is short and other machines can reach this server: whoever guesses it can run code here."
        print(f"agent-kernel: {risk}", file=sys.stderr)
    if not args.certfile and not args.trust_proxy:
        risk = "tokens and conversations are sent unencrypted: use a proxy with TLS, or give --certfile."
        print(f"agent-kernel: {risk}", file=sys.stderr)


def _url(args: argparse.Namespace, port: int) -> str:
    """Return the URL at which programs on this machine reach the server."""
    host = HOST if args.host in ANYWHERE else args.host
    scheme = "https" if args.certfile else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{args.base_url.rstrip('/')}"


def _on_start(args: argparse.Namespace, services: Services, key: ServeToken, url: str, query: str | None) -> None:
    gc.freeze()  # the collector does not search the modules again
    gc.enable()
    _announce(args, services, key, url, query)


def _announce(args: argparse.Namespace, services: Services, key: ServeToken, url: str, query: str | None) -> None:
    """Print the addresses of the server. ``query`` is the query of the URL that logs in one browser; None means that
    the server has no web page.
    """
    info, settings = services.runtime.engine.info(), services.runtime.settings
    if missing := _missing(settings):
        print(f"agent-kernel: {missing}", file=sys.stderr, flush=True)
    sessions = str(settings.data_dir) if settings.store in ("sqlite", "files") else settings.store_name
    body = {
        "event": "started",
        "version": __version__,
        "pid": os.getpid(),
        "url": url,
        "page_url": None if query is None else f"{url}/",
        "openai_base_url": f"{url}/v1",
        "anthropic_base_url": url,
        "agent_url": f"{url}/agent/v1",
        "engine": settings.engine,
        "model": info.model,
        "local": info.local,
        "token_file": str(key.file) if key.file else None,
        "token_from": key.where,
        "sessions": sessions,
        "limits": {name: getattr(settings, name) for name in LIMIT_FIELDS},
    }
    if args.json:
        print(json.dumps(body), flush=True)
        return
    body |= {"model": info.model + ("" if info.local else f", at {info.host}"), "limits": _limits(settings)}
    body["page"] = _page(f"{url}/", query)
    print(STARTED.format_map(body), end="", flush=True)


def _page(url: str, query: str | None) -> str:
    """Describe how a user opens the web page. The link that logs in is printed only to a terminal, because other output
    is stored in logs.
    """
    if query is None:
        return "no page, because this server has no login for browsers"
    if not query or not sys.stdout.isatty():
        return f"{url} (it asks for a token)"
    return f"{url}{query} (this link logs in one browser; it is valid for an hour)"


def _check_built(args: argparse.Namespace, settings: Settings) -> None:
    """Check the complete settings, including those of Jupyter's configuration files, before the server starts. Raises
    InvalidRequest, UnknownModel.
    """
    if args.hub:
        hub_service.check_settings(settings)
    _check_model(settings)


def _check_model(settings: Settings) -> None:
    """Raise UnknownModel if the configured model does not exist, so that the server does not start.

    A model of the catalog or of a hub may be pulled later, so for these only the name is checked.
    """
    if settings.engine != "local":
        return
    if not catalog.is_path(settings.model):
        with contextlib.suppress(ModelBroken):  # the warning of ``_missing`` says what is wrong with it
            catalog.find_installed(settings.model, settings.cache_dir, settings.backend)
    elif not Path(settings.model).expanduser().exists():
        raise UnknownModel(f"There is no model at {settings.model}.", hint="Use another path, or a name: --model NAME.")


def _missing(settings: Settings) -> str:
    """Return the reason why the model cannot answer yet, or an empty string if it can. Does not contact a model hub."""
    if settings.engine != "local" or catalog.is_path(settings.model):
        return ""
    try:
        if catalog.find_installed(settings.model, settings.cache_dir, settings.backend) is None:
            return f"{settings.model} is not on this machine yet: agent-kernel model pull {settings.model}"
    except AgentKernelError as error:
        return str(error)
    return ""


def _limits(settings: Settings) -> str:
    words = {
        "user_requests_per_minute": "turns a minute",
        "user_turns_at_once": "turns at once",
        "user_tokens_per_hour": "tokens an hour",
        "user_tokens_per_day": "tokens a day",
    }
    limits = [f"{getattr(settings, name):,} {unit}" for name, unit in words.items() if getattr(settings, name)]
    return ", ".join(limits) or "no limits (--shared sets some)"


def _wait(turns: int) -> None:
    one = turns == 1
    state = (
        f"{turns} turn{'' if one else 's'} {'is' if one else 'are'} running and "
        "can finish; press Ctrl-C again to stop at once."
    )
    print(f"agent-kernel: stopping. {state}", file=sys.stderr, flush=True)


SERVE_ARGUMENTS = (
    argument("--port", type=_port, help=f"port to listen on (default: {PORT}; 0: any free port)"),
    argument("--host", help=f"address to listen on (default: {HOST}; 0.0.0.0: all addresses)"),
    argument(
        "--hub",
        action="store_true",
        help="run as a service of a JupyterHub, which identifies its users (c.JupyterHub.services)",
    ),
    *(
        argument(f"--{name}", choices=SETTINGS[name].choices or None, help=SETTINGS[name].help)
        for name in ("engine", "model", "tools", "permission", "namespace", "store")
    ),
    argument("--local-only", action="store_true", default=None, help=SETTINGS["local_only"].help),
    DATA_DIR,
    CACHE_DIR,
    argument(
        "--token-file",
        type=Path,
        help="file with the token (default: JUPYTER_TOKEN, AGENT_KERNEL_TOKEN, or a generated one)",
    ),
    argument(
        "--base-url",
        type=_base_url,
        help="path prefix of all routes, for a proxy that does not strip it",
    ),
    argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name under which clients reach this server through a proxy; may be repeated",
    ),
    argument("--trust-proxy", action="store_true", help="trust the headers X-Forwarded-For and X-Scheme"),
    argument(
        "--shared",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="limit the turns and tokens of each user; on by default if other machines can reach this server",
    ),
    argument("--certfile", type=Path, help="TLS certificate; needs --keyfile"),
    argument("--keyfile", type=Path, help="private key of the TLS certificate"),
    argument("--root", type=Path, help="directory below which notebooks are searched (default: an empty directory)"),
    argument(
        "--drain",
        type=_seconds,
        default=DRAIN_S,
        metavar="S",
        help="seconds for running turns to finish when the server stops",
    ),
    argument("--log-level", choices=LEVELS, default="warning", help="log level on stderr"),
    argument("--json", action="store_true", help="print one line of JSON when the server is ready, instead of text"),
)
SERVE = Command(
    "serve",
    "run a server for a browser and for OpenAI's and Anthropic's clients, without notebooks",
    serve,
    SERVE_ARGUMENTS,
)

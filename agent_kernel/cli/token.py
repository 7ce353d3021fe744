"""``agent-kernel token``: creates, lists and revokes the API tokens with which programs log in."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import Any

from agent_kernel.cli.base.command import DATA_DIR, JSON, Command, argument, group, settings_of
from agent_kernel.cli.base.output import Column, facts, join, moment, show
from agent_kernel.core.api_tokens import DAYS, MAX_DAYS, SCOPES, ApiToken, ApiTokenStore
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.store.shared_tokens import open_token_store


def add_scope(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "scopes:\n" + "\n".join(f"  {name:<10}{what}" for name, what in SCOPES.items())
    what = "scope of the token; may be repeated (default: turns); see below"
    parser.add_argument("--scope", action="append", choices=list(SCOPES), metavar="SCOPE", help=what)


def token_new(args: argparse.Namespace) -> int:
    # An unset shell variable expands to an empty name, with which the token would belong to the server's own user.
    if args.user == "":
        raise InvalidRequest("The name of the user is empty.", hint="Omit --user for the server's own user.")
    with _tokens(args) as tokens:
        token, text = tokens.new(args.scope or ["turns"], days=args.days, name=args.name, user=args.user or "")
    if args.json:
        facts({**_row(token), "token": text}, as_json=True)
        return 0
    ends = moment(token.expires)
    print(
        f"{token.id} ({join(sorted(token.scopes))}) is valid until {ends}; the token is shown only now:",
        file=sys.stderr,
    )
    print(text)
    return 0


def token_list(args: argparse.Namespace) -> int:
    columns = {
        "id": Column("ID"),
        "name": Column("NAME"),
        "scopes": Column("SCOPES", join),
        "user": Column("USER"),
        "created": Column("MADE", moment),
        "expires": Column("ENDS", moment),
        "used": Column("USED", lambda used: moment(used)[:10] if used else "never"),
        "state": Column("STATE"),
    }
    with _tokens(args) as tokens:
        rows = [_row(token) for token in tokens.list_tokens()]
    show(rows, columns, as_json=args.json, empty="There is no token.")
    return 0


def token_revoke(args: argparse.Namespace) -> int:
    with _tokens(args) as tokens:
        token = tokens.revoke(args.id)
    if args.json:
        facts({"id": args.id, "revoked": True}, as_json=True)
    else:
        print(f"{args.id}{f' ({token.name})' if token else ''} was revoked.")
    return 0


def _tokens(args: argparse.Namespace) -> closing[ApiTokenStore]:
    settings = settings_of(args)
    return closing(open_token_store(settings.tokens_path, settings.store))


def _row(token: ApiToken) -> dict[str, Any]:
    row = {"id": token.id, "name": token.name, "scopes": sorted(token.scopes), "user": token.user}
    times = {"created": token.created, "expires": token.expires, "used": token.used}
    return {**row, **times, "state": "expired" if token.is_expired else "valid"}


STORE = argument(
    "--store",
    help="session store of the servers; a token is valid on every server that uses this database (default: the "
    "variable AGENT_KERNEL_STORE, which you should use if the value contains a password)",
)
NEW_ARGUMENTS = (
    add_scope,
    argument("--days", type=int, default=DAYS, help=f"days until the token expires: 1 to {MAX_DAYS} (default: {DAYS})"),
    argument(
        "--name",
        default="",
        help="name of the token; tokens with the same name and without the scope sessions share their conversations",
    ),
    argument("--user", metavar="NAMESPACE", help="user of the token (default: the server's own user)"),
    STORE,
    JSON,
    DATA_DIR,
)
TOKEN = group(
    "token",
    "manage long-lived tokens with which programs use a server",
    Command("new", "create a token; it is shown once", token_new, NEW_ARGUMENTS),
    Command("list", "list tokens, and when each was last used", token_list, (STORE, JSON, DATA_DIR)),
    Command(
        "revoke",
        "revoke a token, effective at once",
        token_revoke,
        (argument("id", help="a token id from 'agent-kernel token list'"), STORE, JSON, DATA_DIR),
    ),
)

"""The jail's own network: no device at all, a loopback of its own, or one on which the server's proxy listens.

Runs in the process that becomes the jail, inside its network namespace: standard library only.
"""

from __future__ import annotations

import fcntl
import socket
import struct

PROXY = ("127.0.0.1", 3128)
"""Where the proxy listens inside; the usual port of one."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _UP = 0x8913, 0x8914, 1
BACKLOG = 64


def loopback_up() -> None:
    """Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def listener() -> socket.socket:
    """Belongs to this namespace whoever accepts on it. Raises OSError."""
    return socket.create_server(PROXY, backlog=BACKLOG)


def variables() -> dict[str, str]:
    """What makes libraries and tools use the proxy."""
    url = f"http://{PROXY[0]}:{PROXY[1]}"
    own = "localhost,127.0.0.1,::1"
    found = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": own}
    return found | {name.lower(): value for name, value in found.items()}

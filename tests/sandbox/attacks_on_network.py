"""Attacks of hostile code with network ``full``: around the proxy, or through it to forbidden addresses.

A target counts as reached if the proxy reports an open connection.
"""

from __future__ import annotations

from collections.abc import Mapping

ASK = """
import socket
def ask(head):
    with socket.create_connection(('127.0.0.1', 3128), 10) as proxy:
        proxy.sendall(head)
        proxy.settimeout(10)
        said = proxy.recv(4096)
    status = said.split(b'\\r\\n')[0].split(b' ')[1:2]
    if status and status[0] in (b'400', b'403', b'502', b'503'):
        raise OSError(said)
    if not said:
        raise OSError('closed')
    return said
def connect(target):
    return ask(b'CONNECT ' + target + b' HTTP/1.1\\r\\nHost: ' + target + b'\\r\\n\\r\\n')
"""

_TARGETS = {
    "this machine by its address": "127.0.0.1:{tcp}",
    "this machine by its name": "localhost:{tcp}",
    "this machine by a name below localhost": "a.localhost:{tcp}",
    "this machine by a name with a dot": "localhost.:{tcp}",
    "this machine in capitals": "LOCALHOST:{tcp}",
    "this machine by another loopback address": "127.8.8.8:{tcp}",
    "this machine by IPv6": "[::1]:{tcp}",
    "this machine by a mapped address": "[::ffff:127.0.0.1]:{tcp}",
    "this machine by a mapped address in hexadecimal": "[::ffff:7f00:1]:{tcp}",
    "this machine by a translated address": "[64:ff9b::7f00:1]:{tcp}",
    "this machine by an address of 6to4": "[2002:7f00:1::]:{tcp}",
    "this machine by no address": "0.0.0.0:{tcp}",
    "this machine by no address of IPv6": "[::]:{tcp}",
    "this machine in two numbers": "127.1:{tcp}",
    "this machine in one number": "2130706433:{tcp}",
    "this machine in hexadecimal": "0x7f000001:{tcp}",
    "this machine in octal": "0177.0.0.1:{tcp}",
    "this machine in circled digits": "①②⑦.⓪.⓪.①:{tcp}",
    "this machine behind a user": "example.com@127.0.0.1:{tcp}",
    "this machine behind a path": "example.com/@127.0.0.1:{tcp}",
    "this machine behind a fragment": "example.com#@127.0.0.1:{tcp}",
    "this machine behind a NUL": "127.0.0.1%00.example.com:{tcp}",
    "this machine by its own address": "{own}:{tcp}",
    "this machine by its host name": "{hostname}:{tcp}",
    "the metadata of a cloud": "169.254.169.254:80",
    "the metadata of a cloud by name": "metadata.google.internal:80",
    "the metadata of a cloud in a private address": "100.100.100.200:80",
    "the metadata of a cloud by IPv6": "[fd00:ec2::254]:80",
    "a link-local address": "169.254.1.1:80",
    "a link-local address of IPv6": "[fe80::1]:80",
    "a link-local address with a zone": "[fe80::1%25lo]:80",
    "a private address of class A": "10.0.0.1:80",
    "a private address of class B": "172.16.0.1:80",
    "a private address of class C": "192.168.1.1:80",
    "a carrier's address": "100.64.0.1:80",
    "a private address of IPv6": "[fd00::1]:80",
    "a site's address of IPv6": "[fec0::1]:80",
    "everybody": "255.255.255.255:80",
    "a group": "224.0.0.1:80",
    "a reserved address": "240.0.0.1:80",
    "a mail server": "93.184.216.34:25",
    "no port": "93.184.216.34:0",
    "a port beyond the last": "93.184.216.34:65616",
    "a negative port": "93.184.216.34:-1",
    "a unix socket": "unix:{unix}:80",
}
_HEADS = {
    "asks for this machine by a URL": "GET http://127.0.0.1:{tcp}/ HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n",
    "asks for this machine by a header": "GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{tcp}\\r\\n\\r\\n",
    "asks for this machine behind a user": "GET http://example.com@127.0.0.1:{tcp}/ HTTP/1.1\\r\\n\\r\\n",
    "asks for this machine behind a backslash": "GET http://127.0.0.1:{tcp}\\\\@example.com/ HTTP/1.1\\r\\n\\r\\n",
    "asks for this machine without a version": "GET http://127.0.0.1:{tcp}/\\r\\n\\r\\n",
    "asks for a file": "GET file:///etc/passwd HTTP/1.1\\r\\n\\r\\n",
    "asks for another protocol": "GET ftp://127.0.0.1:{tcp}/ HTTP/1.1\\r\\n\\r\\n",
    "asks for nothing": "\\r\\n\\r\\n",
    "asks in another language": "\\x05\\x01\\x00\\r\\n\\r\\n",
    "asks with a line in its target": "CONNECT 127.0.0.1:{tcp}\\nx HTTP/1.1\\r\\n\\r\\n",
    "asks for too much": "GET http://example.com/ HTTP/1.1\\r\\nX: ' + b'x' * 200_000 + b'\\r\\n\\r\\n",
}
PROXY: Mapping[str, str] = {
    **{
        f"connects to {name}": f"{ASK}attempt(lambda: connect('{target}'.encode()))"
        for name, target in _TARGETS.items()
    },
    **{name: f"{ASK}attempt(lambda: ask(b'{head}'))" for name, head in _HEADS.items()},
    "connects past the proxy": "attempt(lambda: socket.create_connection(('1.1.1.1', 443), 2))",
    "connects past the proxy by IPv6": "attempt(lambda: socket.create_connection(('2606:4700:4700::1111', 443), 2))",
    "connects to this machine past the proxy": "attempt(lambda: socket.create_connection(('127.0.0.1', {tcp}), 2))",
    "connects to this machine's own address past the proxy": (
        "attempt(lambda: socket.create_connection(({own!r}, {tcp}), 2))"
    ),
    "sends UDP past the proxy": (
        "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53)))"
    ),
    "looks a name up past the proxy": "attempt(lambda: socket.getaddrinfo('example.com', 80))",
    "connects to an abstract socket of the host": (
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + {abstract!r}))"
    ),
    "connects to a unix socket of the host": "attempt(lambda: socket.socket(socket.AF_UNIX).connect({unix!r}))",
    "takes the proxy's place": "attempt(lambda: socket.create_server(('127.0.0.1', 3128)))",
    "takes the proxy's place with others": (
        "attempt(lambda: socket.create_server(('127.0.0.1', 3128), reuse_port=True))"
    ),
    "adds a route": "attempt(lambda: socket.socket(16, socket.SOCK_RAW))",
    "adds a device": (
        "import fcntl\nattempt(lambda: fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, "
        "struct.pack('16sh14x', b'lo', 0)))"
    ),
}

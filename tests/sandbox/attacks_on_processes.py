"""Attacks of hostile code on processes, users, limits and sockets. See ``attacks``."""

from __future__ import annotations

PROCESSES: dict[str, str] = {
    "connects by TCP": "attempt(lambda: socket.create_connection(('127.0.0.1', {tcp}), 2))",
    "connects by TCP, IPv6": "attempt(lambda: socket.create_connection(('::1', {tcp}), 2))",
    "connects by TCP in a child": (
        "code = 'import socket; socket.create_connection((\"127.0.0.1\", {tcp}), 2)'\n"
        "attempt(lambda: subprocess.run([sys.executable, '-c', code], check=True, capture_output=True))"
    ),
    "listens": "attempt(lambda: socket.create_server(('127.0.0.1', 0)))",
    "sends UDP": "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp})))",
    "connects to a unix socket": "attempt(lambda: socket.socket(socket.AF_UNIX).connect({unix!r}))",
    "connects to a hidden unix socket": "attempt(lambda: socket.socket(socket.AF_UNIX).connect('/.sources/0/.sock'))",
    "connects to an abstract socket": "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + {abstract!r}))",
    "sends to a unix datagram socket": (
        "def send():\n"
        "    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    return a.sendto(b'x', {datagram!r})\n"
        "attempt(send)"
    ),
    "kills a process of the host": "attempt(lambda: os.kill({victim}, 9))",
    "kills the server": "attempt(lambda: os.kill({server}, 0))",
    "kills its supervisor": "attempt(lambda: os.kill(os.getppid(), 9) if os.getppid() > 1 else read('/nothing'))",
    "kills everything": "attempt(lambda: os.kill(-1, 0) if {shared} else read('/nothing'))",
    "stops a process of the host": "attempt(lambda: os.kill({victim}, signal.SIGSTOP))",
    "lowers a limit of the host": "import resource\nattempt(lambda: resource.prlimit({victim}, 7, (3, 3)))",
    "becomes root": "attempt(lambda: os.setuid(0) if os.getuid() else read('/nothing'))",
    "becomes root by sudo": "attempt(lambda: subprocess.run(['su', '-c', 'id'], check=True, capture_output=True))",
    "makes a device": "attempt(lambda: os.mknod('dev', 0o600 | 0o020000, os.makedev(1, 1)))",
    "gains by a set-user-id copy": (
        "import shutil\n"
        "shutil.copy('/bin/sh', 'sh'); os.chmod('sh', 0o755)\n"
        "def gain():\n"
        "    os.chmod('sh', 0o6755)\n"
        "    return subprocess.run(['./sh', '-pc', 'cat /etc/shadow'], check=True, capture_output=True)\n"
        "attempt(gain)"
    ),
    "leaves a set-user-id file": (
        "def leave():\n"
        "    fd = os.open('setuid', os.O_CREAT | os.O_WRONLY, 0o4755)\n"
        "    if not os.fstat(fd).st_mode & 0o4000: raise OSError('without the bit')\n"
        "    return 'it is set-user-id'\n"
        "attempt(leave)"
    ),
    "gives a file capabilities": "write('cap')\nattempt(lambda: gained('cap'))",
    "gives a file away": "write('gift')\nattempt(lambda: os.chown('gift', 0 if os.getuid() else 1, 1) or own('gift'))",
    "runs a program from memory": (
        "def run():\n"
        "    fd = os.memfd_create('x')\n"
        "    os.write(fd, open('/bin/cat', 'rb').read())\n"
        "    path = '/proc/self/fd/%d' % fd\n"
        "    return subprocess.run([path, {secret!r}], check=True, capture_output=True, pass_fds=[fd])\n"
        "attempt(run)"
    ),
    "takes capabilities": (
        "def take():\n"
        "    header, data = struct.pack('=Ii', 0x20080522, 0), struct.pack('=6I', *[0xFFFFFFFF] * 6)\n"
        "    return refused(libc.syscall(NUMBERS['capset'], header, data))\n"
        "attempt(take)"
    ),
    "has capabilities": (
        "def look():\n"
        "    for line in open('/proc/self/status'):\n"
        "        if line.startswith(('CapEff', 'CapPrm')) and int(line.split()[1], 16): return line\n"
        "    raise LookupError\n"
        "attempt(look)"
    ),
    "writes a program": "attempt(lambda: os.open('/usr/bin/escape', os.O_WRONLY | os.O_CREAT))",
    "reads the host's shared memory": "attempt(lambda: read({shm!r}))",
    "finds another session's shared memory": "attempt(lambda: read('/dev/shm/of-other'))",
    "holds descriptors that it was not given": (
        "def look():\n"
        "    known = ('/dev/null', 'pipe:', 'socket:', 'anon_inode:')\n"
        "    for fd in os.listdir('/proc/self/fd'):\n"
        "        try: to = os.readlink('/proc/self/fd/' + fd)\n"
        "        except OSError: continue\n"
        "        if not to.startswith(known) and 'proc' not in to and not to.startswith(os.getcwd()): return to\n"
        "    raise LookupError\n"
        "attempt(look)"
    ),
    "makes a process of the host slower": "attempt(lambda: os.setpriority(os.PRIO_PROCESS, {victim}, 19))",
    "pins a process of the host": "attempt(lambda: os.sched_setaffinity({victim}, {0}))",
    "schedules a process of the host": (
        "attempt(lambda: os.sched_setscheduler({victim}, os.SCHED_BATCH, os.sched_param(0)))"
    ),
    "signals a process of the host by a descriptor": (
        "attempt(lambda: signal.pidfd_send_signal(os.pidfd_open({victim}), 9))"
    ),
    "signals a thread of the host": "attempt(lambda: refused(libc.syscall(NUMBERS['tgkill'], {victim}, {victim}, 9)))",
    "wins priority": "attempt(lambda: os.nice(-5))",
    "runs in real time": "attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))",
    "raises its own limits": (
        "import resource\n"
        "def more():\n"
        "    soft, hard = resource.getrlimit(resource.RLIMIT_AS)\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (2 * hard, 2 * hard))\n"
        "    return 'more'\n"
        "def attempted():\n"
        "    try: return more()\n"
        "    except ValueError as error: raise OSError from error\n"
        "attempt(attempted)"
    ),
    "writes a file that is too large": (
        "def grow():\n"
        "    with open('large', 'wb') as file: file.truncate(1 << 40)\n"
        "    return os.path.getsize('large')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "attempt(grow)"
    ),
    "opens more files than it is given": "attempt(open_all)",
    "takes more memory than it is given": (
        "import mmap\nattempt(lambda: [mmap.mmap(-1, 1 << 30) for _ in range(64)] and 'all')"
    ),
    "fills the host's memory by /tmp": (
        "def fill():\n"
        "    with open('/tmp/fill', 'wb') as file:\n"
        "        for _ in range(256): file.write(bytes(1 << 20))\n"
        "    return 'filled'\n"
        "def attempted():\n"
        "    try: return fill()\n"
        "    finally:\n"
        "        try: os.unlink('/tmp/fill')\n"
        "        except OSError: pass\n"
        "attempt(attempted)"
    ),
    "fills the host's memory by /dev/shm": (
        "def fill():\n"
        "    with open('/dev/shm/fill', 'wb') as file:\n"
        "        for _ in range(256): file.write(bytes(1 << 20))\n"
        "    return 'filled'\n"
        "def attempted():\n"
        "    try: return fill()\n"
        "    finally:\n"
        "        try: os.unlink('/dev/shm/fill')\n"
        "        except OSError: pass\n"
        "attempt(attempted)"
    ),
    "looks a name up": "attempt(lambda: socket.getaddrinfo('example.com', 80))",
    "connects to the metadata of a cloud": "attempt(lambda: socket.create_connection(('169.254.169.254', 80), 2))",
    "connects to Jupyter's port": "attempt(lambda: socket.create_connection(('localhost', {tcp}), 2))",
}

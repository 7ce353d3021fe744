"""Attacks of hostile code on files, and on what /proc shows of other processes. See ``attacks``."""

from __future__ import annotations

FILES: dict[str, str] = {
    "reads a file outside": "attempt(lambda: read({secret!r}))",
    "reads /etc/shadow": "attempt(lambda: read('/etc/shadow'))",
    "reads ssh keys": "attempt(lambda: read(os.path.join({home!r}, '.ssh', 'known_hosts')) or os.listdir({home!r}))",
    "lists the home directory": "attempt(lambda: set(os.listdir({home!r})) - {'.cargo'} or read('/nothing'))",
    "reads Jupyter's runtime directory": "attempt(lambda: read({runtime!r}))",
    "reads another session's work directory": "attempt(lambda: read({other!r}))",
    "lists other sessions' work directories": (
        "attempt(lambda: set(os.listdir({work_root!r})) - {os.path.basename(os.getcwd())} or read('/nothing'))"
    ),
    "reads the server's environment": "attempt(lambda: read('/proc/{server}/environ'))",
    "finds the secret in an environment": (
        "def look():\n"
        "    for path in glob.glob('/proc/[0-9]*/environ'):\n"
        "        try:\n"
        "            text = open(path, 'rb').read()\n"
        "        except OSError:\n"
        "            continue\n"
        "        if b'hunter2' in text: return path\n"
        "    raise LookupError\n"
        "attempt(lambda: look() if 'hunter2' not in str(dict(os.environ)) else 'in my own')"
    ),
    "reads the server's memory": "attempt(lambda: open('/proc/{server}/mem', 'rb'))",
    "writes outside": "attempt(lambda: write({secret!r}))",
    "creates a file outside": "attempt(lambda: write({outside!r} + '/new'))",
    "writes into the notebook's directory": "attempt(lambda: write({notebook!r} + '/new'))",
    "changes a file of the notebook's directory": "attempt(lambda: write({notebook!r} + '/data.csv'))",
    "deletes from the notebook's directory": "attempt(lambda: os.unlink({notebook!r} + '/data.csv'))",
    "truncates a file outside": "attempt(lambda: os.truncate({secret!r}, 0))",
    "writes into the interpreter's packages": "attempt(lambda: write(os.__file__))",
    "reads a dot file beside the notebook": "attempt(lambda: read({notebook!r} + '/.env'))",
    "reads a dot file below the notebook": "attempt(lambda: read({notebook!r} + '/sub/.secret/key'))",
    "reads a dot file of a directory below the notebook": "attempt(lambda: read({notebook!r} + '/sub/.env'))",
    "reads the settings of a repository below the notebook": "attempt(lambda: read({notebook!r} + '/sub/.git/config'))",
    "reads a sidecar below the notebook": "attempt(lambda: read({notebook!r} + '/sub/deep/other.agent.json'))",
    "reads a dot file beside modules": "attempt(lambda: read({modules!r} + '/.env'))",
    "reads a sidecar beside modules": "attempt(lambda: read({modules!r} + '/inner/nb.agent.json'))",
    "reads a sidecar": "attempt(lambda: read({notebook!r} + '/nb.agent.json'))",
    "reads a sidecar's blobs": "attempt(lambda: read({notebook!r} + '/nb.agent/blob'))",
    "follows a link beside the notebook": "attempt(lambda: read({notebook!r} + '/link'))",
    "follows a link of its own": (
        "os.path.lexists('out') or os.symlink({secret!r}, 'out')\nattempt(lambda: read('out'))"
    ),
    "writes through a link of its own": (
        "os.path.lexists('out') or os.symlink({secret!r}, 'out')\nattempt(lambda: write('out'))"
    ),
    "hard-links a file outside": "attempt(lambda: os.link({secret!r}, 'hard'))",
    "renames a file out of the jail": "write('mine')\nattempt(lambda: os.rename('mine', {outside!r} + '/mine'))",
    "climbs out by ..": "attempt(lambda: read('../../../../../../../../..' + {secret!r}))",
    "leaves by the root of another process": "attempt(lambda: read('/proc/1/root' + {secret!r}))",
    "reads by a child process": "attempt(lambda: subprocess.run(['cat', {secret!r}], check=True, capture_output=True))",
    "reads the server's database": "attempt(lambda: read({database!r}))",
    "writes the server's database": "attempt(lambda: write({database!r}))",
    "reads the person's shell history": "attempt(lambda: read(os.path.join({home!r}, '.bash_history')))",
    "reads credentials of clouds": "attempt(lambda: os.listdir(os.path.join({home!r}, '.aws')) or read('/nothing'))",
    "reads a token of a toolchain": "attempt(lambda: read({token!r}))",
    "reads Jupyter's settings": "attempt(lambda: os.listdir(os.path.join({home!r}, '.jupyter')))",
    "lists other users": "attempt(lambda: os.listdir('/home'))",
    "reads the log of the system": "attempt(lambda: os.listdir('/var/log'))",
    "reads what runs at times": "attempt(lambda: os.listdir('/etc/cron.d'))",
    "reads the host's ssh keys": "attempt(lambda: os.listdir('/etc/ssh') and read('/etc/ssh/ssh_host_rsa_key'))",
    "changes who there is": "attempt(lambda: os.open('/etc/passwd', os.O_WRONLY))",
    "makes itself start": "attempt(lambda: os.open('/etc/ld.so.preload', os.O_WRONLY | os.O_CREAT))",
    "reads the host's /tmp": "attempt(lambda: read({tmp!r}))",
    "finds a file of another session's /tmp": "attempt(lambda: read('/tmp/of-other'))",
    "finds another session's process": (
        "def look():\n"
        "    for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "        try:\n"
        "            if b'of-other' in open(path, 'rb').read(): return path\n"
        "        except OSError:\n"
        "            continue\n"
        "    raise LookupError\n"
        "attempt(look)"
    ),
    "writes another session's work directory": "attempt(lambda: write({other!r}))",
    "writes a sidecar": "attempt(lambda: write({notebook!r} + '/nb.agent.json'))",
    "makes a sidecar": "attempt(lambda: write({notebook!r} + '/new.agent.json'))",
    "renames a file of the notebook's directory": (
        "attempt(lambda: os.rename({notebook!r} + '/data.csv', {notebook!r} + '/gone.csv'))"
    ),
    "replaces a file of the notebook's directory": (
        "write('mine2')\nattempt(lambda: os.replace('mine2', {notebook!r} + '/data.csv'))"
    ),
    "makes a directory outside": "attempt(lambda: os.mkdir({outside!r} + '/made'))",
    "removes a directory outside": "attempt(lambda: os.rmdir({outside!r}))",
    "makes a link outside": "attempt(lambda: os.symlink('/etc', {outside!r} + '/made'))",
    "makes a pipe outside": "attempt(lambda: os.mkfifo({outside!r} + '/pipe'))",
    "lists a directory outside": "attempt(lambda: os.listdir({outside!r}))",
    "opens a directory and goes up": (
        "def climb():\n"
        "    fd = os.open('.', os.O_PATH)\n"
        "    for _ in range(9):\n"
        "        below, fd = fd, os.open('..', os.O_PATH, dir_fd=fd)\n"
        "        os.close(below)\n"
        "    try: return os.open({secret!r}.lstrip('/'), os.O_RDONLY, dir_fd=fd)\n"
        "    finally: os.close(fd)\n"
        "attempt(climb)"
    ),
    "links a nameless file out": (
        "def link():\n"
        "    fd = os.open('.', os.O_TMPFILE | os.O_RDWR)\n"
        "    return os.link('/proc/self/fd/%d' % fd, {outside!r} + '/made', follow_symlinks=True)\n"
        "attempt(link)"
    ),
    "races a link": (
        "import threading\n"
        "def race():\n"
        "    write('real'); stop = []\n"
        "    def swap():\n"
        "        while not stop:\n"
        "            for to in ('real', {secret!r}):\n"
        "                os.symlink(to, 'next'); os.replace('next', 'swapped')\n"
        "    os.symlink('real', 'swapped'); thread = threading.Thread(target=swap); thread.start()\n"
        "    try:\n"
        "        for _ in range(300):\n"
        "            try:\n"
        "                if b'hunter2' in read('swapped'): return 'won'\n"
        "            except OSError: pass\n"
        "    finally:\n"
        "        stop.append(1); thread.join()\n"
        "    raise LookupError\n"
        "attempt(race)"
    ),
    "finds a secret among its arguments": (
        "attempt(lambda: 'found' if b'hunter2' in open('/proc/self/cmdline', 'rb').read() else read('/nothing'))"
    ),
}

"""Attacks on the sandbox, as tables: to add one is to add a row.

`REFUSED` are statements of which each has to raise an OSError, and leave the scene as it was; `ENDED` are programs with
how they have to end; `SPIES` print all that they can find, among which the right answer must not be; `FORGED` are
completions that claim to be right, and are worth nothing.
"""

from __future__ import annotations

import platform

from dovetail_reward._sandbox.outside import THREADS


def number(x86_64: int, aarch64: int) -> int:
    """Return the number of a system call on this machine."""
    return aarch64 if platform.machine() == "aarch64" else x86_64


REFUSED = {
    # files
    "read a secret": "open('{secret}').read()",
    "read an absolute path below its folder": "open(os.path.join(os.getcwd(), '..', '{secret}')).read()",
    "read from the folder itself": "os.chdir('{folder}'); open('secret').read()",
    "read by a handle that opens nothing": "os.read(os.open('{secret}', os.O_PATH), 9)",
    "open such a handle again": "open('/proc/self/fd/%d' % os.open('{secret}', os.O_PATH)).read()",
    "read below such a handle": "open('secret', opener=lambda n, _: os.open(n, 0, dir_fd=os.open('{folder}', os.O_PATH)))",
    "map a secret": "mmap.mmap(os.open('{secret}', os.O_RDONLY), 0, prot=mmap.PROT_READ)",
    "load a secret as a library": "ctypes.CDLL('{secret}')",
    "run a secret": "compile(open('{secret}').read(), 'x', 'exec')",
    "open by a number": "call('open_by_handle_at', -100, None, 0)",
    "openat2": "call('syscall', 437, -100, b'{secret}', bytes(24), 24)",
    "read the passwords": "open('/etc/passwd').read()",
    "read the shadow passwords": "open('/etc/shadow').read()",
    "list a folder": "os.listdir('{folder}')",
    "list /": "os.listdir('/')",
    "list other runs": "os.listdir('/tmp')",
    "write a new file": "open('{folder}/new', 'w').write('x')",
    "write a file of its own": "open('own', 'w').write('x')",
    "append": "open('{secret}', 'a').write('x')",
    "overwrite in place": "os.open('{secret}', os.O_RDWR)",
    "a file without a name": "os.open('.', os.O_TMPFILE | os.O_WRONLY)",
    "creat": "call('creat', b'{folder}/new', 0o666)",
    "empty a file": "os.truncate('{secret}', 0)",
    "remove": "os.unlink('{secret}')",
    "rename": "os.rename('{secret}', '{folder}/other')",
    "a large file": "open('large', 'wb').write(bytes(100_000_000))",
    "write where Python is": "open(os.__file__, 'a').write('x')",
    "write its bytecode": "open(os.path.join(os.path.dirname(os.__file__), '__pycache__', 'x.pyc'), 'wb')",
    # links, modes, owners
    "link": "os.link('{secret}', 'mine')",
    "symlink": "os.symlink('{secret}', 'mine')",
    "follow a link of the kernel": "open('/proc/self/root{secret}').read()",
    "make a folder": "os.mkdir('{folder}/new')",
    "a named pipe": "os.mkfifo('{folder}/new')",
    "change the mode": "os.chmod('{secret}', 0o777)",
    "change the owner": "os.chown('{secret}', 1, 1)",
    "change the time": "os.utime('{secret}', (0, 0))",
    "an attribute": "os.setxattr('{secret}', 'user.x', b'x')",
    # /proc, other processes
    "the parent's environment": "open(f'/proc/{{os.getppid()}}/environ', 'rb').read()",
    "the parent's memory": "open(f'/proc/{{os.getppid()}}/mem', 'rb')",
    "the parent's command line": "open(f'/proc/{{os.getppid()}}/cmdline', 'rb').read()",
    "the parent's program": "os.readlink(f'/proc/{{os.getppid()}}/exe')",
    "the parent's files": "os.listdir(f'/proc/{{os.getppid()}}/fd')",
    "the victim's root": "open('/proc/{victim}/root{secret}').read()",
    "its own environment by /proc": "open('/proc/self/environ', 'rb').read()",
    "its own memory by /proc": "open('/proc/self/mem', 'r+b')",
    "its own map by /proc": "open('/proc/self/maps').read()",
    "the list of processes": "os.listdir('/proc')",
    "attach to the parent": "call('ptrace', 16, os.getppid(), 0, 0)",
    "be traced": "call('ptrace', 0, 0, 0, 0)",
    "read the parent's memory": "call('process_vm_readv', os.getppid(), None, 0, None, 0, 0)",
    "write the parent's memory": "call('process_vm_writev', os.getppid(), None, 0, None, 0, 0)",
    "take a file of the parent": "call('syscall', 438, 0, 1, 0)",
    "kill": "os.kill({victim}, 9)",
    "ask whether it can kill": "os.kill({victim}, 0)",
    "kill a thread": "call('tgkill', {victim}, {victim}, 9)",
    "kill by a handle": "signal.pidfd_send_signal(os.pidfd_open({victim}), 9)",
    "kill a group": "os.killpg({victim}, 9)",
    "kill all": "os.kill(-1, 0)",
    "queue a signal": "call('sigqueue', {victim}, 9, 0)",
    "have the kernel signal": "fcntl.fcntl(1, fcntl.F_SETOWN, {victim})",
    "enlarge a pipe at the cost of the user's others": "fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)",
    "a lease on a file that all programs share": "fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), 1024, 0)",
    "a lock on a file that all programs share": "fcntl.lockf(os.open(os.__file__, os.O_RDONLY), fcntl.LOCK_SH)",
    "be told of changes in a folder": "fcntl.fcntl(os.open('.', os.O_RDONLY), 1026, 1)",
    "read an installed package": "open(os.path.dirname(os.__file__) + '/site-packages/pip/__init__.py').read()",
    "slow down others": "os.setpriority(os.PRIO_PROCESS, {victim}, 19)",
    "have others run elsewhere": "os.sched_setaffinity({victim}, [0])",
    "the limits of others": "resource.prlimit({victim}, resource.RLIMIT_CPU, (1, 1))",
    # network, and what else goes out
    "tcp": "socket.create_connection(('127.0.0.1', {tcp})).send(b'x')",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))",
    "tcp by IPv6": "socket.create_connection(('::1', {tcp})).send(b'x')",
    "listen": "socket.create_server(('127.0.0.1', 0))",
    "ask for a name": "socket.getaddrinfo('example.org', 80)",
    "raw packets": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "unix sockets": "socket.socketpair()",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "the kernel's ciphers": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "the host of a machine": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "io_uring": "call('syscall', 425, 8, None)",
    "a terminal": "open('/dev/tty', 'w')",
    "type into a terminal": "fcntl.ioctl(0, 0x5412, b'x')",
    # processes
    "fork": "os.fork()",
    "vfork by subprocess": "subprocess.run(['{python}', '-c', 'pass'], check=True)",
    "posix_spawn": "os.posix_spawn('{python}', ['python', '-c', 'pass'], {{}})",
    "system": "os.system('true') == 0 or fail()",
    "another program": "os.execv('{python}', ['python', '-c', 'print(\"through\")'])",
    "a program in memory": f"call('syscall', {number(322, 281)}, -1, b'', None, None, 0x1000)",
    "a daemon": "os.fork() or os.setsid() or os.fork() or time.sleep(60)",
    "clone": f"call('syscall', {number(56, 220)}, 17, None, None, None, None)",
    "clone3": "call('syscall', 435, bytes(88), 88)",
    "fork by another interface": "call('syscall', 0x40000000 + 57)",
    "a group of its own": "os.setpgid(0, 0)",
    "a session of its own": "os.setsid()",
    # limits, rights, namespaces
    "more memory": "resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
    "more processor time": "resource.prlimit(0, resource.RLIMIT_CPU, (10**6, 10**6))",
    "outlive its reader": "call('prctl', 1, 0, 0, 0, 0)",
    "a second filter": "call('prctl', 22, 2, None, 0, 0)",
    "become another user": "os.setuid(65534)",
    "become root": "os.setresuid(0, 0, 0)",
    "capabilities": "call('capset', (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6))",
    "mount": "call('mount', b'none', b'/mnt', b'tmpfs', 0, None)",
    "a namespace": "call('unshare', 0x10000000)",
    "the namespace of another": "call('setns', 0, 0)",
    "a new root": "os.chroot('.')",
    "pivot": f"call('syscall', {number(155, 41)}, b'.', b'.')",
    "the clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "the name of the machine": "socket.sethostname('x')",
    # memory and devices
    "a file in memory": "os.write(os.memfd_create('x'), b'x')",
    "a secret file in memory": "call('syscall', 447, 0)",
    "shared memory that stays": "call('shmget', 1234, 4096, 0o1666)",
    "shared memory by a name": "open('/dev/shm/dovetail-attack', 'w')",
    "a message queue that stays": "call('msgget', 1234, 0o1666)",
    "a semaphore that stays": "call('semget', 1234, 1, 0o1666)",
    "memory that cannot be swapped": "call('mlockall', 3)",
    "page faults of its own": f"call('syscall', {number(323, 282)}, 1)",
    "a program of the kernel": f"call('syscall', {number(321, 280)}, 0, None, 0)",
    "counters of the kernel": f"call('syscall', {number(298, 241)}, bytes(112), 0, -1, -1, 0)",
    "keys of the kernel": f"call('syscall', {number(248, 217)}, b'user', b'x', b'x', 1, -3)",
    "messages of the kernel": "open('/dev/kmsg').read(1)",
    "a disk": "open('/dev/sda', 'rb')",
    "a device of its own": "os.mknod('{folder}/new', 0o060666, os.makedev(8, 0))",
    "the machine's memory": "open('/dev/mem', 'rb')",
    "watch files": "call('inotify_init1', 0)",
}

PROGRAM = """
import ctypes, fcntl, json, mmap, os, resource, signal, socket, subprocess, sys, time
def fail():
    raise OSError
def call(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0 and ctypes.get_errno() in (1, 13, 38):
        fail()  # that an argument is wrong is found where the call is allowed
through = []
for name, attack in {attacks}.items():
    try:
        exec(attack)
    except OSError:
        continue
    through.append(name)
print(json.dumps(through))
"""

_NATIVE = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes([{code}]))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
_OLD_CALL = _NATIVE.format(code="0xB8, 2, 0, 0, 0, 0xCD, 0x80, 0xC3")
"""fork, as programs of 32 bits call it."""
_THREADS = """
import threading, time
threading.stack_size(32768)
while True:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""

ENDED = {
    # time
    "a loop": ("while True: pass", "late"),
    "a sleep": ("import time; time.sleep(60)", "late"),
    "one long operation": ("9 ** 9 ** 9", "late"),
    "a regular expression without end": ("import re; re.match('(a+)+$', 'a' * 60 + '!')", "late"),
    "signals ignored": (
        "import signal\nfor s in (1, 2, 14, 15, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
        "late",
    ),
    "a thread that goes on": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        "late",
    ),
    "an exit that never ends": ("import atexit, time\natexit.register(time.sleep, 60)", "late"),
    "a destructor that never ends": ("class A:\n  def __del__(self):\n    while True: pass\na = A()\ndel a", "late"),
    "stopped": ("import signal; signal.raise_signal(signal.SIGSTOP)", "late"),
    "out of processor time by its own hand": ("import signal; signal.raise_signal(signal.SIGXCPU)", "late"),
    "output closed, and it goes on": ("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(60)", "late"),
    "an answer held back": ("import sys, time\nsys.stdout.write('1')\ntime.sleep(60)", "late"),
    # output
    "a flood": ("while True: print('x' * 1000)", "loud"),
    "a flood without a line": ("import sys; sys.stdout.buffer.write(b'x' * 10**7)", "loud"),
    "a flood by another handle": ("import os\nn = os.dup(1)\nwhile True: os.write(n, b'x' * 4096)", "loud"),
    "a flood of errors": ("import os\nwhile True: os.write(2, b'x' * 65536)", "late"),
    # memory, processes, handles
    "3 GB": ("x = bytearray(3 << 30)", "failed"),
    "memory bit by bit": ("x = []\nwhile True: x.append(bytearray(1 << 20))", "failed"),
    "a map of 1 TB": ("import mmap; mmap.mmap(-1, 1 << 40)", "failed"),
    "a text that doubles": ("x = 'x'\nwhile True: x += x", "failed"),
    "a fork bomb": ("import os\nwhile True: os.fork()", "failed"),
    "threads with large stacks": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        "late",
    ),
    f"threads with small stacks, over {THREADS}": (_THREADS, "failed"),
    "such threads behind a closed output": (f"import os\nos.close(1)\n{_THREADS}", "failed"),
    "handles": ("x = [open('/dev/null') for _ in range(10**6)]", "failed"),
    "pipes": ("import os\nwhile True: os.pipe()", "failed"),
    "recursion": ("def f(): f()\nf()", "failed"),
    "recursion without a limit": (
        "import sys\nsys.setrecursionlimit(10**9)\nf = lambda *_: [*map(f, [0])]\nf()",
        "failed",
    ),
    # crashes and exits
    "a null pointer": ("import ctypes; ctypes.string_at(0)", "failed"),
    "abort": ("import os; os.abort()", "failed"),
    "an exit": ("import os; os._exit(1)", "failed"),
    "an exit after an answer": ("print(1); exit(2)", "failed"),
    "an error after an answer": ("print(1); raise ValueError", "failed"),
    "the status of a process that was not confined": ("exit(97)", "failed"),
    "the same, without an output": ("import os; os.close(1); os._exit(97)", "failed"),
    "killed by its own hand": ("import signal; signal.raise_signal(signal.SIGKILL)", "failed"),
    # what is not a program
    "nonsense": ("this is no Python", "failed"),
    "surrogates and zeros": ("\ud800\x00", "failed"),
    "a million brackets": ("(" * 1_000_000, "failed"),
    "a library that is not Python's own": ("import numpy", "failed"),
}
if platform.machine() == "x86_64":
    ENDED["a call of 32 bits"] = (_OLD_CALL, "failed")

SECRET = "the-right-answer-9731"

SPIES = {
    "arguments and files": "import os, sys\nprint(sys.argv, *(open(f).read() for f in os.listdir('.')))",
    "frames": "import sys\nf = sys._getframe()\nwhile f:\n    print(f.f_locals, f.f_globals)\n    f = f.f_back",
    "frames of an error": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    f = e.__traceback__.tb_frame\n"
    "    while f: print(f.f_locals); f = f.f_back",
    "objects": "import gc\nfor o in gc.get_objects():\n    if isinstance(o, (dict, list, tuple)): print(repr(o)[:10**5])",
    "modules": "import sys\nfor m in list(sys.modules.values()): print(str(vars(m))[:10**5])",
    "handles": "import os\nfor n in range(64):\n    try: os.lseek(n, 0, 0); print(n, os.read(n, 10**6))\n    except OSError as e: print(n, e)",
    "its own memory": "import ctypes, gc\nfor o in gc.get_objects()[::50]: print(ctypes.string_at(id(o) & ~4095, 4096))",
    "the folders of others": "import os\nfor p in ('.', '/tmp', '/dev/shm', '..', '/var/tmp', '/proc/self/fd'):\n"
    "    try: print(p, os.listdir(p))\n    except OSError as e: print(p, e)",
    "the environment": "import os\nprint(dict(os.environ), os.getcwd())",
}
"""Programs; each finds something, and prints it."""

FORGED = {
    "equal to everything": "class A:\n    __eq__ = lambda *_: True\n    __hash__ = None\nf = lambda: A()",
    "a list equal to everything": "class A(list):\n    __eq__ = lambda *_: True\nf = lambda: A()",
    "a text equal to everything": "class A(str):\n    __eq__ = lambda *_: True\n    __hash__ = str.__hash__\nf = lambda: A()",
    "a number equal to everything": "class A(float):\n    __eq__ = lambda *_: True\nf = lambda: A()",
    "a text that says it passed": "f = lambda: 'PASS'",
    "written beside": "import os\ndef f():\n    os.write(1, b'PASS'); os.write(3, b'true')\n    return 'PASS'",
    "written before": "import os\nos.write(1, b'+'); os.write(3, b'\"right\"')\nos._exit(0)",
    "nothing, and a good exit": "import os\nos._exit(0)",
    "nothing, by an error of the system": "raise SystemExit(0)",
    "json is replaced": "import json\njson.dumps = lambda *a, **k: 'null'\nf = lambda: 1",
    "builtins are replaced": "import builtins\nbuiltins.getattr = lambda *_: (lambda *_: '')\nclass Solution: pass",
    "not a number": "f = lambda: float('nan')",
    "infinity": "f = lambda: float('inf')",
    "half of a surrogate pair": r"f = lambda: '\ud800'",
    "brackets without end": "class A(list): pass\ndef f():\n    x = []\n    for _ in range(900): x = [x]\n    return x",
    "itself": "def f():\n    x = []\n    x.append(x)\n    return x",
    "a generator without end": "import itertools\nf = lambda: itertools.repeat(1)",
    "every answer at once": "f = lambda: [1, 'a', None, True, {}, []]",
    "the arguments": "f = lambda *a: a",
    "a test of its own": "import sys\nsys.exit(0)\nf = lambda: 'right'",
}
"""Definitions of `f`, or what is to stand for one."""

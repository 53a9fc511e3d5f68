"""The cage of the trace worker and of compilers: what their code may not do, tried from inside, one thing after another."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cannot import CANNOT
from opscope_tools import children
from opscope_tools.children import Cage, protection, run, scratch_folder
from opscope_tools.children import cage as cages
from tally import Tally

pytestmark = pytest.mark.skipif(
    not protection().complete, reason=f"{CANNOT}{'; '.join(protection().missing) or 'no cage here'}"
)

SEALING = Path(children.__file__).with_name("seal.py")
#: name -> Python that does what it names; each must fail inside. `{secret}` is a file outside, `{outside}` its folder
ESCAPES = {
    "read a file outside": "open({secret!r}).read()",
    "read a file outside through a link": "os.symlink({secret!r}, 'link'); open('link').read()",
    "read a file outside through a hard link": "os.link({secret!r}, 'hard'); open('hard').read()",
    "list a folder outside": "os.listdir({outside!r})",
    "list the home folder": "os.listdir(os.path.expanduser('~root'))",
    "read the password hashes": "open('/etc/shadow').read()",
    "read the environment of the parent": "open(f'/proc/{{os.getppid()}}/environ').read()",
    "read the memory of the parent": "open(f'/proc/{{os.getppid()}}/mem', 'rb').read(1)",
    "list the processes": "os.listdir('/proc')",
    "write a file outside": "open({outside!r} + '/made', 'w')",
    "append to a file outside": "open({secret!r}, 'a')",
    "truncate a file outside": "os.truncate({secret!r}, 0)",
    "remove a file outside": "os.remove({secret!r})",
    "rename a file outside": "os.rename({secret!r}, {secret!r} + '2')",
    "move a file from outside in": "os.rename({secret!r}, 'mine')",
    "make a folder outside": "os.mkdir({outside!r} + '/made')",
    "make a link outside": "os.symlink('/', {outside!r} + '/made')",
    "change the mode of a file outside": "os.chmod({secret!r}, 0o777)",
    "change the owner of a file outside": "os.chown({secret!r}, 1, 1)",
    "change the times of a file outside": "os.utime({secret!r}, (0, 0))",
    "set an attribute of a file outside": "os.setxattr({secret!r}, 'user.x', b'x')",
    "write into the interpreter": "open(os.__file__, 'a')",
    "write a startup file": "open(sys.prefix + '/lib/sitecustomize.py', 'w')",
    "write into shared memory": "open('/dev/shm/made', 'w')",
    "write into the temporary folder": "open('/tmp/opscope-made', 'w')",
    "open a socket": "socket.socket()",
    "open a socket of version 6": "socket.socket(socket.AF_INET6)",
    "open a datagram socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "open a unix socket": "socket.socket(socket.AF_UNIX)",
    "open a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW)",
    "open a netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "connect to a server": "socket.create_connection(('127.0.0.1', 1), 1)",
    "look up a name over the network": "urllib.request.urlopen('http://127.0.0.1:1/')",
    "pair sockets that send to others": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '/dev/log')",
    "hand on a descriptor": "socket.send_fds(socket.socketpair()[0], [b'x'], [0])",
    "watch a folder outside": "check(libc.inotify_add_watch(libc.inotify_init(), {outside!r}.encode(), 0x100))",
    "read the notes beside a file": "os.getxattr({secret!r}, 'user.x')",
    "list the notes beside a file": "os.listxattr({secret!r})",
    "read about the network": "open('/proc/self/net/unix').read()",
    "read about mounts": "open('/proc/self/mountinfo').read()",
    "be served first": "os.nice(-1)",
    "fork": "os.fork()",
    "fork as C does": "check(libc.fork())",
    "fork as the kernel does": "check(libc.syscall(57))",
    "clone a process": "check(libc.syscall(56, 17, 0, 0, 0, 0))",
    "clone a process in another memory": "check(libc.syscall(435, ctypes.create_string_buffer(88), 88))",
    "run a shell": "check(-os.system('true'))",
    "run a program": "subprocess.run(['/bin/true'], check=True)",
    "become a program": "os.execv('/bin/true', ['true'])",
    "become this interpreter again": "os.execv(sys.executable, [sys.executable, '-c', ''])",
    "run a program that it has written": "shutil.copyfile('/bin/true', 'mine'); os.execv('mine', ['mine'])",
    "run a file without a name": "fd = os.memfd_create('x'); os.write(fd, open('/bin/true', 'rb').read()); os.execv(fd, ['x'])",
    "spawn as multiprocessing does": "multiprocessing.get_context('spawn').Process(target=print).start()",
    "fork as multiprocessing does": "multiprocessing.get_context('fork').Process(target=print).start()",
    "signal the parent": "os.kill(os.getppid(), 0)",
    "signal every process": "os.kill(-1, 0)",
    "signal the parent by thread": "check(libc.syscall(234, os.getppid(), os.getppid(), 0))",
    "signal the parent by descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)",
    "trace the parent": "check(libc.ptrace(16, os.getppid(), 0, 0))",
    "read another process's memory": "check(libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0))",
    "mount": "check(libc.mount(b'none', b'.', b'tmpfs', 0, None))",
    "leave for other namespaces": "check(libc.unshare(0x10000000))",
    "change the root": "os.chroot('.')",
    "make a device": "os.mknod('device', 0o020666, os.makedev(1, 3))",
    "use io_uring": "check(libc.syscall(425, 8, ctypes.create_string_buffer(120)))",
    "load a program into the kernel": "check(libc.syscall(321, 0, 0, 0))",
    "ask for a key": "check(libc.syscall(249, b'user', b'x', b'y', 0))",
    "attach shared memory of System V": "check(libc.shmget(1, 4096, 0o1666))",
    "limit another process": "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))",
    "slow another process down": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "bind another process to a core": "os.sched_setaffinity(os.getppid(), {{0}})",
    "take the filter off": "check(libc.prctl(22, 0, 0, 0, 0))",
    "gain rights by a program": "os.execv('/usr/bin/su', ['su'])",
}  # fmt: skip
HARMLESS = {
    "read the interpreter": "open(os.__file__).read()",
    "write in its folder": "open('x', 'w').write('y'); os.remove('x')",
    "start a thread": "t = threading.Thread(target=int); t.start(); t.join()",
    "read about itself": "open('/proc/self/status').read()",
    "copy a file with its notes": "open('x', 'w').write('y'); shutil.copyfile('x', 'z'); shutil._copyxattr('x', 'z')",
    "draw random numbers": "open('/dev/urandom', 'rb').read(1)",
}
_TRYING = """
import ctypes, json, multiprocessing, os, resource, shutil, signal, socket, subprocess, sys, threading, urllib.request
sealing, seal, secret, outside = sys.argv[1:5]
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
space = dict(globals())
exec(open(sealing).read(), space)
if seal:
    space["seal"](bytes.fromhex(seal))
said = {}
for name, code in json.load(sys.stdin).items():
    try:
        exec(code, globals())
        said[name] = ""
    except BaseException as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    return tmp_path


def tried(cases: dict[str, str], outside: Path, *, sealed: bool = True) -> dict[str, str]:
    """What each case ended in, run in one caged process."""
    secret = str(outside / "secret")
    said = {name: code.format(secret=secret, outside=str(outside)) for name, code in cases.items()}
    with scratch_folder("cage") as folder:
        cage = Cage(read=(sys.prefix, sys.base_prefix, str(SEALING)), write=(str(folder),), sealed=sealed)
        done = run(
            [sys.executable, "-P", "-c", _TRYING, str(SEALING), cage.seal(), secret, str(outside)],
            seconds=60, text=json.dumps(said), folder=folder, cage=cage,
        )  # fmt: skip
    assert done.code == 0, done.err
    found: dict[str, str] = json.loads(done.out.splitlines()[-1])
    return found


def test_nothing_that_leads_out_of_the_cage_is_possible_inside(outside: Path, tally: Tally) -> None:
    found = tried(ESCAPES, outside)
    tally.executions(len(found), [name for name, error in found.items() if not error])
    assert len(found) == len(ESCAPES)
    assert (outside / "secret").read_text() == "secret"
    assert sorted(one.name for one in outside.iterdir()) == ["secret"]


def test_a_compiler_reaches_no_network_and_changes_no_files_of_others(outside: Path, tally: Tally) -> None:
    """A cage that is not sealed: programs may be started in it, as compilers do, and nothing more."""
    wanted = ("socket", "change the", "watch", "notes", "mount", "slow", "served", "limit")
    cases = {name: code for name, code in ESCAPES.items() if any(word in name for word in wanted)}
    found = tried(cases, outside, sealed=False)
    tally.executions(len(found), [name for name, error in found.items() if not error])


def test_what_a_trace_needs_is_possible_inside(outside: Path) -> None:
    assert {name: error for name, error in tried(HARMLESS, outside).items() if error} == {}


@pytest.mark.parametrize("wall", ["socket", "chmod", "utimensat", "shmget", "execve", "fork"])
def test_each_wall_is_what_stops_its_escape(wall: str, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take one system call out of the filter: what it stood against is refused differently, or not at all."""
    cases = {"socket": "open a socket", "chmod": "change the mode of a file outside", "fork": "fork as the kernel does",
             "utimensat": "change the times of a file outside", "shmget": "attach shared memory of System V",
             "execve": "become this interpreter again"}  # fmt: skip
    case = {cases[wall]: ESCAPES[cases[wall]]}
    before = tried(case, outside)
    monkeypatch.setattr(cages, "_WALLS", [name for name in cages._WALLS if name != wall])
    monkeypatch.setattr(cages, "_SEAL", tuple(name for name in cages._SEAL if name != wall))
    cages._exported.cache_clear()
    try:
        after = tried(case, outside) if wall != "execve" else execve_allowed(case, outside)
    finally:
        cages._exported.cache_clear()
    assert before != after


def execve_allowed(case: dict[str, str], outside: Path) -> dict[str, str]:
    """A process that becomes another says nothing more; that it did is the answer."""
    try:
        return tried(case, outside)
    except (IndexError, AssertionError):
        return dict.fromkeys(case, "")


def test_a_machine_without_landlock_or_seccomp_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cages, "_landlock_version", lambda: (0, ("the kernel has no Landlock",)))
    monkeypatch.setattr(cages, "_seccomp", lambda: None)
    found = protection.__wrapped__()
    assert not found.complete
    assert "files was not confined" in found.sentence()
    assert "the kernel has no Landlock" in found.sentence()
    assert "libseccomp" in found.sentence()
    monkeypatch.setattr(cages, "protection", lambda: found)
    described = Cage(sealed=True).described(sys.executable)
    assert (described["landlock"], described["walls"], Cage(sealed=True).seal()) == ("", "", "")


def test_a_whole_cage_has_nothing_to_say() -> None:
    assert protection().sentence() == ""

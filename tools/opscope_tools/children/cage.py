"""What the kernel can forbid a child: Landlock for files, signals and TCP, seccomp for system calls. Neither needs privileges.

A cage lists what is allowed; everything else is not. Two filters of system calls: `walls` holds for every caged program
(no sockets, no looking into other processes, no changing of owners and modes), `seal` in addition for the trace worker
after it has started: no new program, no new process. Both are built here with libseccomp and loaded by the child.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its file is run by path, in another process
    from opscope_tools.children.launcher import DescribedCage

__all__ = ["Cage", "Protection", "protection"]

#: what programs, their loader and the C library read before they do anything
_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/localtime", "/etc/timezone",
    "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/os-release", "/etc/locale.alias", "/etc/alternatives",
    "/etc/mime.types", "/etc/ssl/openssl.cnf",
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys/vm/overcommit_memory", "/proc/version",
    "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage", "/sys/fs/cgroup",
)  # fmt: skip
#: programs that start the caged program, or that every compiler driver asks for
_LOADERS = ("/lib/ld-linux-aarch64.so.1", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1")

#: system calls that no caged program makes: the network, other processes, owners and modes, mounts, the kernel
_WALLS = (
    "socket socketpair accept accept4 bind connect listen sendto sendmsg sendmmsg recvmsg recvmmsg"
    " inotify_init inotify_init1 inotify_add_watch setpriority"
    " ptrace process_vm_readv process_vm_writev process_madvise pidfd_open pidfd_getfd pidfd_send_signal kcmp"
    " rt_sigqueueinfo rt_tgsigqueueinfo"
    " chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr fsetxattr setxattrat"
    " removexattr lremovexattr fremovexattr removexattrat utime utimes futimesat utimensat"
    " mount umount umount2 mount_setattr move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick pivot_root chroot"
    " unshare setns bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register"
    " keyctl add_key request_key shmget shmat msgget semget mq_open"
    " init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff sethostname setdomainname"
    " settimeofday clock_settime clock_adjtime adjtimex acct quotactl quotactl_fd syslog lookup_dcookie"
    " open_by_handle_at name_to_handle_at fanotify_init iopl ioperm modify_ldt personality vhangup"
).split()  # fmt: skip
#: what reads notes that are kept beside files; answered as by a file system that keeps none, which copying programs expect
_NOTES = "getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat".split()
#: system calls that may be made about oneself only, which the argument of this place says by being 0
_OWN = {
    "prlimit64": 0, "sched_setaffinity": 0, "sched_setscheduler": 0, "sched_setattr": 0, "sched_setparam": 0,
    "migrate_pages": 0, "move_pages": 0, "ioprio_set": 1,
}  # fmt: skip
#: and what a trace worker does not do once it runs: another program, another process, a signal to one
_SEAL = ("execve", "execveat", "fork", "vfork", "kill", "tkill")
_CLONE_THREAD = 0x10000


@dataclass(frozen=True)
class Cage:
    """What a child may do. Paths are files or folders with all that lies below; those that do not exist are left out."""

    #: to read, beside the system's libraries
    read: tuple[str, ...] = ()
    #: to read, change, make and remove
    write: tuple[str, ...] = ()
    #: to run as programs, beside the program itself
    execute: tuple[str, ...] = ()
    #: whether the child starts no program and no process once it runs: it loads that filter itself (seal.py)
    sealed: bool = False

    def described(self, program: str) -> DescribedCage:
        """The cage as the launcher takes it: what is enforceable on this machine, and the paths as they are."""
        landlock = _landlock_package()
        programs = {*_existing((*_LOADERS, *self.execute, program)), str(Path(program).resolve())}
        return {
            "landlock": landlock if landlock and protection().files else "",
            "read": sorted(_existing((*_SYSTEM, *self.read))),
            "write": sorted(_existing(("/dev/null", *self.write))),
            "execute": sorted(programs),
            "walls": _exported(()).hex() if protection().calls else "",
        }

    def seal(self) -> str:
        """The filter that a sealed child loads once it runs, as hexadecimal digits; '' where there is none."""
        return _exported(_SEAL).hex() if self.sealed and protection().calls else ""


@dataclass(frozen=True)
class Protection:
    """What this machine can forbid a child, and what is missing for the rest."""

    files: bool
    calls: bool
    landlock_version: int = 0
    missing: tuple[str, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether a cage keeps all that it promises."""
        return self.files and self.calls

    def sentence(self) -> str:
        """What a reader of a result has to know; '' where the cage is complete."""
        if self.complete:
            return ""
        lacks = [] if self.files else ["its reading and writing of files was not confined"]
        lacks += [] if self.calls else ["network and new processes were not forbidden to it"]
        return f"The process that ran the model's code was not fully caged: {' and '.join(lacks)} ({'; '.join(self.missing)})."


@cache
def protection() -> Protection:
    """What can be enforced here; asked once."""
    if sys.platform != "linux":
        return Protection(False, False, missing=(f"Landlock and seccomp are Linux's, this is {sys.platform}",))
    version, missing = _landlock_version()
    calls = _seccomp() is not None
    if not calls:
        missing = (*missing, "libseccomp was not found: install libseccomp2")
    return Protection(version > 0, calls, version, missing)


def _landlock_version() -> tuple[int, tuple[str, ...]]:
    try:
        landlock = importlib.import_module("landlockpy")
    except ImportError:
        return 0, ("the package landlockpy is not installed",)
    version = int(landlock.abi_version())
    return version, () if version else ("the kernel has no Landlock: Linux 5.13 or newer, with it enabled",)


def _landlock_package() -> str:
    """The folder in which landlockpy lies; '' where it is not installed."""
    spec = importlib.util.find_spec("landlockpy")
    return str(Path(spec.origin).parent.parent) if spec is not None and spec.origin else ""


@cache
def _seccomp() -> ModuleType | None:
    try:
        return importlib.import_module("pyseccomp")
    except (ImportError, RuntimeError, OSError):  # it raises RuntimeError where libseccomp is missing
        return None


@cache
def _exported(more: tuple[str, ...]) -> bytes:
    """The filter as the kernel takes it: the walls and `more` are refused, everything else is allowed."""
    seccomp = _seccomp()
    assert seccomp is not None, "protection() says whether there is libseccomp"
    found = seccomp.SyscallFilter(seccomp.ALLOW)
    refused = seccomp.ERRNO(errno.EPERM)
    for name in (*_WALLS, *more):
        if _known(seccomp, name):
            found.add_rule(refused, name)
    for name in _NOTES:
        if _known(seccomp, name):
            found.add_rule(seccomp.ERRNO(errno.ENOTSUP), name)
    for name, place in _OWN.items():
        if _known(seccomp, name):
            found.add_rule(refused, name, seccomp.Arg(place, seccomp.NE, 0))
    if more:
        # a thread is no process; glibc falls back to `clone`, whose flags a filter can read, where `clone3` is absent
        found.add_rule(refused, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_THREAD, 0))
        if _known(seccomp, "clone3"):
            found.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    with tempfile.TemporaryFile() as file:
        found.export_bpf(file)
        file.seek(0)
        return file.read()


def _known(seccomp: ModuleType, name: str) -> bool:
    """Whether this architecture and this libseccomp have the call."""
    try:
        return int(seccomp.resolve_syscall(seccomp.system_arch(), name)) >= 0
    except (OSError, ValueError):
        return False


def _existing(paths: Iterable[str]) -> set[str]:
    return {path for path in paths if path and Path(path).exists()}

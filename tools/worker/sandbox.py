"""The sandbox: what a worker or a compiler may read, write, connect to and ask of the kernel.

Two parts, each used where the kernel has it, neither needing root or another program:

Landlock (Linux 5.13 and later): files can be read below the given folders only and written below others only; TCP is
refused (from ABI 4), so are signals to processes outside and abstract sockets (from ABI 6). Other processes' folders in
/proc must not be among the given ones: Landlock alone was seen to leave /proc/PID/environ readable to root.

seccomp (on x86-64): sockets other than Unix ones are refused, and system calls that trace, mount, load, reconfigure,
leave the process group, change what another process gets of the machine, have the kernel work for a stopped process, or
make what outlives all processes.

In namespaces of its own (`tools.bubblewrap`) a process can also be given empty file systems that nobody else sees.

NOT covered: the memory and time of a GPU, the driver's own system calls, reading of what lies below the allowed
folders; how many processes or files are made is for `tools.usage`. Run as a script it confines itself and becomes
another program:

    python -I sandbox.py '{"read": [...], "write": [...], "private": {FOLDER: BYTES, ...}}' PROGRAM ARGUMENT...
"""

import ctypes
import json
import os
import platform
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# Numbers of include/uapi/linux/landlock.h and of the system call table; the calls have the same number everywhere.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULESET_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 0b11
"""Binding and connecting."""
_SCOPES = 0b11
"""Abstract Unix sockets and signals."""
_NEW_MOUNTS = 0x00020000
"""CLONE_NEWNS of include/uapi/linux/sched.h."""
_NO_SETUID, _NO_DEVICES, _RECURSIVE, _PRIVATE = 1 << 1, 1 << 2, 1 << 14, 1 << 18
"""MS_NOSUID, MS_NODEV, MS_REC and MS_PRIVATE of include/uapi/linux/mount.h."""
_CAPABILITY_VERSION_3 = 0x20080522
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2

# arch/x86/entry/syscalls/syscall_64.tbl
_REFUSED_CALLS = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438, "kcmp": 312,
    "add_key": 248, "request_key": 249, "keyctl": 250,
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308, "unshare": 272,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "mount_setattr": 442,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "open_by_handle_at": 304,
    "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320,
    "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "iopl": 172, "ioperm": 173,
    "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305,
    # A process that left its group would not be stopped and ended with it.
    "setpgid": 109, "setsid": 112,
    "sethostname": 170, "setdomainname": 171,
    # io_uring carries out other calls where no filter sees them.
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    # What they make outlives every process, counts for no budget, and is seen by later workers.
    "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240,
    "process_madvise": 440, "process_mrelease": 448,
    # Timers go off, and reads and writes are carried out, while a process is stopped: their interrupts take a processor
    # from the baseline, by thousands, though no thread of the worker runs.
    "timer_create": 222, "timerfd_create": 283, "io_setup": 206, "io_submit": 209,
}  # fmt: skip
# Neither Landlock nor a user namespace keeps a process from slowing down or limiting others of its user, the worker of
# the baseline and the fork server among them. Each call with the place of the argument that names the other process.
_ON_A_PROCESS = {
    "prlimit64": (302, 0), "sched_setaffinity": (203, 0), "sched_setparam": (142, 0), "sched_setscheduler": (144, 0),
    "sched_setattr": (314, 0), "migrate_pages": (256, 0), "move_pages": (279, 0),
    "setpriority": (141, 1), "ioprio_set": (251, 1),
}  # fmt: skip
# Of the calls that can also name all processes of a user, by their first argument: which value does.
_ALL_OF_A_USER = {"setpriority": 2, "ioprio_set": 3}
_SOCKET, _AF_UNIX = 41, 1
_ARGUMENTS = 16
"""Where they start in struct seccomp_data, eight bytes each, the lower half first."""
_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES = 1, 13
SECCOMP_MACHINE = "x86_64"
"""The processor, as the platform calls it, whose system calls the filter knows."""
NOT_STARTED = 127
"""Exit code of the script where the program could not be confined or started."""


class SandboxError(OSError):
    """The kernel refused a part of the sandbox that it said it has."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """The kernel's Landlock ABI; 0 where it has none."""
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION)))


def parts() -> tuple[str, ...]:
    """The names of what `confine` does on this machine, after that of a process of its own."""
    landlock = [f"landlock-{landlock_version()}"] if landlock_version() else []
    return ("process", *landlock, *(["seccomp"] if platform.machine() == SECCOMP_MACHINE else []))


def tier() -> str:
    """The name of what `confine` does on this machine, without what may be around the process."""
    return "+".join(parts())


def mount_private(folders: Mapping[Path, int]) -> None:
    """Put an empty file system of so many bytes on each folder, for this process and its children only.

    Needs CAP_SYS_ADMIN in the process's user namespace, and drops all capabilities in the end.

    Raises:
        SandboxError: the kernel refuses it.
    """
    libc = _libc()
    if libc.unshare(_NEW_MOUNTS):
        raise SandboxError(ctypes.get_errno(), "a mount namespace was refused")
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None):
        raise SandboxError(ctypes.get_errno(), "making the mounts private was refused")
    for folder, size_bytes in folders.items():
        options = f"size={size_bytes},mode=0700".encode()
        flags = ctypes.c_ulong(_NO_SETUID | _NO_DEVICES)
        if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options):
            raise SandboxError(ctypes.get_errno(), f"mounting on {folder} was refused")
    # struct __user_cap_header_struct (version, this process), then two times effective, permitted, inheritable.
    if libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24)):
        raise SandboxError(ctypes.get_errno(), "dropping the capabilities was refused")


def confine(read: Iterable[Path], write: Iterable[Path]) -> None:
    """Confine this process and all it starts, for good; what the kernel lacks is left out, as `tier` says.

    Raises:
        SandboxError: the kernel refuses what it has.
    """
    libc = _libc()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise SandboxError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS was refused")
    if version := landlock_version():
        _landlock(libc, version, read, write)
    if platform.machine() == SECCOMP_MACHINE:
        _seccomp(libc)


def _landlock(libc: ctypes.CDLL, version: int, read: Iterable[Path], write: Iterable[Path]) -> None:
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    writing = reading | _WRITE_FILE | _REMOVE_AND_MAKE
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        writing |= right if version >= since else 0
    # struct landlock_ruleset_attr grew with the ABI: file rights, from 4 network rights, from 6 scopes.
    attributes = struct.pack("=QQQ", writing, _TCP, _SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = int(libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    if ruleset < 0:
        raise SandboxError(ctypes.get_errno(), "landlock_create_ruleset was refused")
    for paths, rights in ((read, reading), (write, writing)):
        for path in paths:
            _allow(libc, ruleset, path, rights)
    if libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise SandboxError(ctypes.get_errno(), "landlock_restrict_self was refused")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    """Allow rights below a path; a path that is not there needs no rule."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    rule = struct.pack("=Qi", rights if path.is_dir() else rights & _FILE_RIGHTS, opened)
    if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
        raise SandboxError(ctypes.get_errno(), f"landlock_add_rule was refused for {path}")
    os.close(opened)


def _seccomp(libc: ctypes.CDLL) -> None:
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in _filter())
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, padding, a pointer.
    header = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, header, 0, 0):
        raise SandboxError(ctypes.get_errno(), "PR_SET_SECCOMP was refused")


def _filter() -> list[tuple[int, int, int, int]]:
    """Classic BPF over struct seccomp_data (number at 0, architecture at 4, first argument at 16): code, two jumps,
    and a constant, for each instruction."""
    program = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    for number in _REFUSED_CALLS.values():
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    for name, (number, place) in _ON_A_PROCESS.items():
        program += _only_on_itself(number, place, _ALL_OF_A_USER.get(name, -1))
    return [
        *program,
        (_JUMP_EQUAL, 0, 3, _SOCKET),
        (_LOAD, 0, 0, _ARGUMENTS),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, _ERRNO | _EACCES),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _only_on_itself(number: int, place: int, everybody: int) -> list[tuple[int, int, int, int]]:
    """Refuse a call whose argument at `place` is neither 0, the caller, nor this process; and one whose first argument
    is `everybody`."""
    return [
        (_JUMP_EQUAL, 0, 7, number),
        (_LOAD, 0, 0, _ARGUMENTS),
        (_JUMP_EQUAL, 3 if everybody >= 0 else 0, 0, max(0, everybody)),
        (_LOAD, 0, 0, _ARGUMENTS + 8 * place),
        (_JUMP_EQUAL, 2, 0, 0),
        (_JUMP_EQUAL, 1, 0, os.getpid()),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def main() -> None:
    """Confine this process as the first argument says, and become the program that follows."""
    folders = json.loads(sys.argv[1])
    try:
        if private := folders.get("private"):
            mount_private({Path(path): size_bytes for path, size_bytes in private.items()})
        confine([Path(path) for path in folders["read"]], [Path(path) for path in folders["write"]])
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()

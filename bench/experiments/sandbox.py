"""Generated code, contained: namespaces, limits and another user, each shown to hold before it is needed.

    sandbox.demand()                       # Uncontained, with a sentence, where a limit does not hold here
    outcome = sandbox.run(program, deadline_s=10)

A program runs in a process that sees nothing but a read-only copy of the system's libraries and its
interpreter, and one tmpfs, its home, to write in. It has its own PID, network, mount, IPC and host-name
namespace, no capabilities, no new privileges, none of this process's environment, and limits (`resource`,
LIMITS); that on memory is one of each process, so PROCESSES and the program itself may take as many times as
much. Its process group is killed at the deadline, and with the first process of a PID namespace everything
in it ends, whatever group it is in.

RLIMIT_NPROC does nothing for root, nor in a user namespace that root has opened. So a child that root starts
becomes another user; one that anybody else starts keeps its user and opens a user namespace, which is what
lets it open the others.

This file is also the program that does so (`_inside`), with the standard library alone: the interpreter that
runs it is started without site-packages. It stops accidents and the usual mischief of generated code. A
kernel that can be exploited is no wall; whoever needs one runs this in a virtual machine.
"""

import contextlib
import ctypes
import functools
import json
import mmap
import os
import resource
import secrets
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20
PROCESSES = 5  # that a program may have at once beside itself, threads among them
LIMITS = {
    "RLIMIT_AS": 1024 * MIB,
    "RLIMIT_FSIZE": 16 * MIB,
    "RLIMIT_NOFILE": 64,
    "RLIMIT_CORE": 0,
}
HOME_BYTES = 64 * MIB
TEST_S = 20.0  # for each program of `self_test`
SECRET_VARIABLE = "BENCH_SANDBOX_DECOY"  # of this process, while `self_test` looks whether a program sees it
GONE_S = 5  # in which the kernel ends what was killed
SAID_CHARS = 300  # that are kept of what a program ended with
# Users that a child of root becomes one of, from a range that systemd leaves unused. Each program has
# another: its limit on processes would count those of a program beside it.
OTHER_UIDS = range(60700, 61184)
# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>; the numbers of newer system calls are the same everywhere
NAMESPACES = {"mount": 0x20000, "PID": 0x20000000, "network": 0x40000000, "IPC": 0x8000000, "UTS": 0x4000000}
NEW_USER = 0x10000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_RDONLY, ATTR_NOSUID = 442, -100, 0x8000, 1, 2
SET_DEATH_SIGNAL, SET_NO_NEW_PRIVS, GET_NO_NEW_PRIVS = 1, 38, 39
IPC_PRIVATE, IPC_CREATE, IPC_REMOVE, SHM_READ_ONLY = 0, 0o1000, 0, 0o10000  # <sys/ipc.h>, <sys/shm.h>
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/dev/null")
INSIDE = "/home/program"  # the tmpfs
# What runs a program: says over the pipe how it ended. `token` says that it came to its last line.
RUNNER = """
import os, sys
pipe, token = int(sys.argv[1]), sys.argv[2]
sys.path[:] = [*sys.path, *sys.argv[3:]]
sys.argv = ["program.py"]
with open("program.py", encoding="utf-8") as file:
    source = file.read()
try:
    exec(compile(source, "program.py", "exec"), {"__name__": "__main__"})
    said = token
except BaseException as failure:
    said = f"{type(failure).__name__}: {failure}".rstrip(": ")
os.write(pipe, said.encode(errors="replace")[:4000])
"""


class Uncontained(RuntimeError):
    """Generated code cannot be contained on this machine; the sentence says which limit does not hold."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended: whether it came to its last line, else why not; seconds that it took."""

    passed: bool
    why: str
    seconds: float


def run(program: str, deadline_s: float, python: str = sys.executable, cpu_s: int | None = None) -> Outcome:
    """Run the Python source `program` with the interpreter `python`, contained, for `deadline_s` seconds, and
    as many of processor time unless `cpu_s` are given.

    Uncontained where the containment itself could not be set up.
    """
    token = secrets.token_hex(16)
    spec = _system(python) | _limits() | {"program": program, "token": token}
    spec["cpu_s"] = cpu_s or max(1, round(deadline_s))
    reader, writer = os.pipe()
    began = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [os.path.realpath(python), "-I", "-S", "-B", __file__, str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[writer],
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
        os.close(writer)
        late = False
        try:
            child.communicate(json.dumps(spec).encode(), timeout=deadline_s)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        seconds = time.monotonic() - began
        said = _said(reader)
        errors.seek(0)
        own = errors.read(10_000).decode(errors="replace").strip()
    if own:
        raise Uncontained(f"The containment could not be set up: {own.splitlines()[-1][:SAID_CHARS]}")
    return _outcome(said, token, late, child.returncode, deadline_s, seconds)


def _said(reader):
    """What came over the pipe before all who held it had ended; Uncontained where one lives on."""
    said = b""
    with open(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], GONE_S)[0]:
            part = pipe.read(4096)
            if not part:
                return said.decode(errors="replace")
            said += part
    raise Uncontained("A process of a program lives on after its group was killed.")


def _outcome(said, token, late, code, deadline_s, seconds):
    if said == token:
        return Outcome(True, "", seconds)
    if said:
        return Outcome(False, said[:SAID_CHARS], seconds)
    if late:
        return Outcome(False, f"it did not end within {deadline_s:g} s", seconds)
    how = f"by signal {code - 128}" if code > 128 else f"with exit code {code}"
    return Outcome(False, f"it ended {how} before its last line", seconds)


@functools.cache
def _system(python):
    """What the child shows of the system: its libraries, and the interpreter with its packages."""
    words = [
        python,
        "-I",
        "-c",
        "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('purelib'))",
    ]
    prefix, packages = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return {
        "python": os.path.realpath(python),
        "packages": packages,
        "shown": [path for path in dict.fromkeys([*SYSTEM, prefix, packages]) if os.path.lexists(path)],
    }


def _limits():
    """The limits that the child sets, and what may count towards them already."""
    return {
        "namespaces": NAMESPACES,
        "limits": LIMITS,
        "processes": PROCESSES,
        "own_processes": _own_processes(),
        "home_bytes": HOME_BYTES,
    }


def _own_processes():
    """Processes and threads of this user, which some kernels count as the program's."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += len(list((process / "task").iterdir()))
    return count


# --- Whether every limit holds ----------------------------------------------------------------------------
#
# Payloads are harmless where their limit does not hold: six sleeps of a second, one connection to a port of
# this process, one file in a folder made for it, memory that is never touched. Each says what it has found as
# the text of the error with which it ends.

_REFUSED = """
try:
{lines}
except OSError:
    raise SystemExit("kept")
raise SystemExit({otherwise!r})
"""
_SLEEPS = """
import os, time
children = []
try:
    for _ in range({most} + 1):
        child = os.fork()
        if not child:
            time.sleep(1)
            os._exit(0)
        children.append(child)
except BlockingIOError:
    pass
raise SystemExit(f"{{len(children)}} started")
"""
_WRITE = """
import os
found = [path for path in {paths} if os.path.lexists(path)]
written = []
for path in [{folder!r}, "/", "/usr", "/dev", "/home"]:
    try:
        with open(path + "/written-by-the-self-test", "w"):
            written.append(path)
    except OSError:
        pass
open("here", "w").write("in its home it may")
raise SystemExit(f"sees {{found}}" if found else f"wrote in {{written}}" if written else "kept")
"""
_WHO = """
import ctypes, os
own = ctypes.CDLL(None)
said = []
if os.getuid() in (0, {forbidden}):
    said.append(f"its user is {{os.getuid()}}")
try:
    os.chroot("/")
    said.append("it has capabilities")
except PermissionError:
    pass
if own.prctl({query}, 0, 0, 0, 0) != 1:
    said.append("it may gain privileges")
raise SystemExit("; ".join(said) or "kept")
"""
_SIGNAL = """
import os
try:
    os.kill({pid}, 0)
except OSError:
    raise SystemExit("kept" if os.getpid() < 10 else f"its number is {{os.getpid()}}")
raise SystemExit("it can signal a process outside")
"""
_CORE = """
import resource
bound = resource.getrlimit(resource.RLIMIT_CORE)
raise SystemExit("kept" if bound == (0, 0) else f"a core dump may have {bound[0]} bytes")
"""
_SEGMENT = """
import ctypes
found = ctypes.CDLL(None).shmat({segment}, None, {read_only}) not in (-1, 2**64 - 1)
raise SystemExit("it sees shared memory of this machine" if found else "kept")
"""
_HOME = """
import os
kept = os.environ.get("HOME") == os.getcwd() == {home!r} and {name!r} not in os.environ
raise SystemExit("kept" if kept else f"HOME is {{os.environ.get('HOME')}}, variables: {{sorted(os.environ)}}")
"""
_SPIN = "while True: pass"
_LINGER = """
import os, time
if not os.fork():
    os.setsid()
time.sleep(30)
"""


@dataclass(frozen=True)
class Check:
    """One limit: its name, whether it bit, and what was seen."""

    limit: str
    holds: bool
    seen: str

    def __str__(self) -> str:
        return f"{'ok ' if self.holds else 'NOT'} {self.limit}: {self.seen}"


def self_test(python: str = sys.executable) -> list[Check]:
    """Whether each limit holds on this machine, tried with programs that do no harm where it does not.

    Where not even a harmless program runs, that one check alone; Uncontained on another system than Linux.
    """
    if sys.platform != "linux":
        raise Uncontained(
            f"Generated code runs only on Linux, whose namespaces contain it; this is {sys.platform}."
        )
    checks = [_check("a harmless program runs", "pass", python, ends_with="")]
    if not checks[0].holds:
        return checks
    small = 8 * MIB
    parts, files = HOME_BYTES // small, LIMITS["RLIMIT_NOFILE"]
    with (
        contextlib.ExitStack() as last,
        socket.create_server(("127.0.0.1", 0)) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        os.environ[SECRET_VARIABLE] = "seen"
        last.callback(os.environ.pop, SECRET_VARIABLE)
        os.chmod(folder, stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
        decoy = Path(folder, "decoy")
        decoy.write_text("a secret that is none")
        paths = [str(decoy), "/proc/1", "/run", "/etc/passwd"]
        programs = {
            "another user than root, no capabilities, no new privileges": _WHO.format(
                query=GET_NO_NEW_PRIVS, forbidden=os.getuid() if os.geteuid() == 0 else 0
            ),
            "network": _refused(
                f"import socket\nsocket.create_connection({server.getsockname()}, timeout=2).close()",
                "a connection to this machine was made",
            ),
            "files outside its home": _WRITE.format(paths=paths, folder=folder),
            "processes outside": _SIGNAL.format(pid=os.getpid()),
            "memory": _refused(f"import mmap\nmmap.mmap(-1, {LIMITS['RLIMIT_AS']})", "more memory was given"),
            "size of a file": _refused(
                f"with open('large', 'wb') as file:\n"
                f"    for _ in range({LIMITS['RLIMIT_FSIZE'] // MIB} + 1):\n"
                f"        file.write(bytes({MIB}))",
                "a larger file was written",
            ),
            "size of its home": _refused(
                f"import os\nfor number in range({parts} + 1):\n"
                "    with open(f'part-{number}', 'wb') as file:\n"
                f"        os.posix_fallocate(file.fileno(), 0, {small})",
                "more was written than its home holds",
            ),
            "open files": _refused(
                f"opened = [open('/dev/null') for _ in range({files})]", f"{files} files were opened"
            ),
            "core dumps": _CORE,
            "HOME and environment": _HOME.format(home=INSIDE, name=SECRET_VARIABLE),
        }
        checks += [_check(limit, program, python) for limit, program in programs.items()]
    seen = run(_SLEEPS.format(most=PROCESSES), TEST_S, python).why.removeprefix("SystemExit: ")
    started = seen.removesuffix(" started")
    holds = started.isdigit() and 0 < int(started) <= PROCESSES
    checks.append(Check("processes", holds, f"{seen} of {PROCESSES + 1} where {PROCESSES} are allowed"))
    checks.append(_shared_memory(python))
    spun = run(_SPIN, TEST_S, python, cpu_s=1)
    checks.append(Check("processor time", "by signal" in spun.why, spun.why))
    # All of a program ends, a child in a session of its own too: its pipe closes.
    lingered = run(_LINGER, 1, python)
    ended = "did not end within" in lingered.why and lingered.seconds < 10
    return [*checks, Check("deadline", ended, lingered.why)]


def _refused(lines, otherwise):
    """Return the program that is kept from doing `lines` by an OSError, else ends with what happened
    `otherwise`."""
    return _REFUSED.format(lines=textwrap.indent(lines, "    "), otherwise=otherwise)


def demand(python: str = sys.executable) -> list[Check]:
    """The checks of `self_test`, all of which hold; Uncontained naming the first that does not."""
    checks = self_test(python)
    for check in checks:
        if not check.holds:
            raise Uncontained(
                f"Generated code is not run here, for one limit does not hold. {check.limit}: {check.seen}. "
                "Score the kept answers on another Linux machine, or in a virtual machine of their own."
            )
    return checks


def _check(limit, program, python, ends_with="SystemExit: kept"):
    """Return the Check of one program: the limit holds where it ends with these words; empty: ends well."""
    outcome = run(program, TEST_S, python)
    seen = outcome.why.removeprefix("SystemExit: ") or "it ended well"
    return Check(limit, outcome.why == ends_with, seen)


def _shared_memory(python):
    """Whether a program cannot attach a segment of a page that this process shares with everybody."""
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(IPC_PRIVATE, mmap.PAGESIZE, IPC_CREATE | 0o666)
    if segment == -1:
        why = os.strerror(ctypes.get_errno())
        return Check("shared memory", False, f"this process could not share any to try it ({why})")
    try:
        return _check("shared memory", _SEGMENT.format(segment=segment, read_only=SHM_READ_ONLY), python)
    finally:
        libc.shmctl(segment, IPC_REMOVE, None)


# --- Inside ------------------------------------------------------------------------------------------------


def _inside(pipe: int) -> int:
    """Contain this process as standard input says, run the program, and return its exit code."""
    spec = json.load(sys.stdin)
    root = os.geteuid() == 0
    user = OTHER_UIDS[os.getpid() % len(OTHER_UIDS)] if root else os.getuid()
    _namespaces(spec["namespaces"], new_user=not root)
    _call("prctl", SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    first = os.fork()  # the first process of the PID namespace: when it ends, all others do
    if first:
        return _code(os.waitpid(first, 0)[1])
    _files_of_its_own(spec, user)
    if root:
        _become(user)
    # The kernel forgets this signal whenever a process becomes another user.
    _call("prctl", SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    _call("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    program = _forked(spec, counted=2 if root else 3)
    if program:
        os.close(pipe)
        os._exit(_code(os.waitpid(program, 0)[1]))
    for name, value in {**spec["limits"], "RLIMIT_CPU": spec["cpu_s"]}.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    words = [spec["python"], "-I", "-S", "-B", "-c", RUNNER, str(pipe), spec["token"], spec["packages"]]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.execve(words[0], words, {"HOME": INSIDE, "TMPDIR": INSIDE, "PATH": "/usr/bin:/bin", **threads})
    return 1


def _call(name, *arguments):
    """A function of libc by its `name`; OSError that names it where it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _namespaces(flags, new_user):
    """Open namespaces of its own; a user namespace first for whoever is not root."""
    uid, gid = os.getuid(), os.getgid()
    try:
        _call("unshare", sum(flags.values()) | (NEW_USER if new_user else 0))
    except OSError as failure:
        which = "a user namespace" if new_user else "namespaces"
        raise SystemExit(
            f"this user may not open {which} ({failure.strerror}): sysctl user.max_user_namespaces and "
            "kernel.apparmor_restrict_unprivileged_userns say whether the system forbids it, and a container "
            "must be started with the right to (--privileged, or a virtual machine)"
        ) from None
    if new_user:
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{file}", "w") as of_this_process:
                of_this_process.write(text)


def _become(user):
    """Become `user`, of no group but its own."""
    try:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    except OSError as failure:
        raise SystemExit(
            f"this root may not become user {user} ({failure.strerror}): it is root of a container that "
            "knows no other users (a rootless one). Score as somebody else, or in a virtual machine"
        ) from None


def _files_of_its_own(spec, uid):
    """Make what is `shown` of the system read-only, all else invisible, and a tmpfs its home."""
    root = "/tmp"  # a place that every system has; the mount is seen by this process alone
    try:
        _mount("", "/", "", MS_REC | MS_PRIVATE)
        shown = {path: _kind(path) for path in spec["shown"]}
        opened = {path: os.open(path, os.O_PATH) for path, kind in shown.items() if kind != "link"}
        _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
        for path, kind in shown.items():
            _show(path, root + path, kind, opened)
        os.makedirs(root + INSIDE)
        _read_only(root)
        _mount("tmpfs", root + INSIDE, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=700,size={spec['home_bytes']}")
        os.chown(root + INSIDE, uid, -1)
        for opened_path in opened.values():
            os.close(opened_path)
    except OSError as failure:
        raise SystemExit(
            f"it has no mounts of its own ({failure.strerror or failure}): Linux 5.12 or newer and the right "
            "to mount in a namespace are needed (kernel.apparmor_restrict_unprivileged_userns=0, or root)"
        ) from None
    os.chroot(root)
    os.chdir(INSIDE)
    with open("program.py", "w", encoding="utf-8") as file:
        file.write(spec["program"])
    os.chmod("program.py", 0o444)


def _kind(path):
    return "link" if os.path.islink(path) else "folder" if os.path.isdir(path) else "file"


def _show(path, target, kind, opened):
    """Show `path` of the system at `target`."""
    if os.path.lexists(target):
        return  # in a folder that is shown already
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if kind == "link":
        os.symlink(os.readlink(path), target)
        return
    if kind == "folder":
        os.mkdir(target)
    else:
        open(target, "w").close()
    _mount(f"/proc/self/fd/{opened[path]}", target, "", MS_BIND | MS_REC)


def _mount(source, target, kind, flags, options=""):
    words = [word.encode() or None for word in (source, target, kind)]
    _call("mount", *words, ctypes.c_ulong(flags), options.encode() or None)


def _read_only(folder):
    """Make `folder` and every mount below it read-only."""
    attributes = (ctypes.c_uint64 * 4)(ATTR_RDONLY | ATTR_NOSUID, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _call("syscall", MOUNT_SETATTR, AT_FDCWD, folder.encode(), AT_RECURSIVE, ctypes.byref(attributes), size)


def _forked(spec, counted):
    """`os.fork` under RLIMIT_NPROC: `processes` beside the program, which is one of those `counted` already.

    Kernels before 5.14 count the user's processes outside as well.
    """
    most = spec["processes"] + counted
    for limit in (most, most + spec["own_processes"]):
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
        with contextlib.suppress(BlockingIOError):
            child = os.fork()
            if not child:
                resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
            return child
    raise SystemExit("no process can be started under the limit on processes")


def _code(status):
    """The exit code of a status of `waitpid`, 128 and the signal's number where a signal ended it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(_inside(int(sys.argv[1])))

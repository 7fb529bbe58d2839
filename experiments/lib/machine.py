"""The machine that a study runs on: what it is, and how busy others keep it."""

import hashlib
import os
import platform
import stat
import subprocess
import threading
import time

# The facts about the machine that a result holds, as columns of the CSV.
FIELDS = ("cpu", "cores", "memory_gib", "kernel", "commit")


def _cpuinfo():
    """The fields of the first processor in /proc/cpuinfo."""
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, colon, value = line.partition(":")
            if not colon:
                break
            fields[name.strip()] = value.strip()
    return fields


def describe_cpu(fields):
    """Name, family and model, and the widest instruction set that Shoal's kernels use."""
    flags = fields.get("flags", "").split()
    if "avx512ifma" in flags:
        wide = "AVX-512 IFMA"
    elif "avx2" in flags:
        wide = "AVX2"
    else:
        wide = "no AVX2"
    name = fields.get("model name", platform.machine())
    return f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}, {wide})"


def memory_bytes(field="MemTotal"):
    """MemTotal or MemAvailable."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    raise KeyError(field)


def commit(root):
    """The commit of the working tree; with "+" and a digest of what was changed or added since, if anything was.

    Programs that come from elsewhere (SHOAL_BIN) may be of any commit: then the text ends with "+SHOAL_BIN".
    """

    def git(*words):
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    changes = git("diff", "HEAD", "--binary") or ""
    # Looks only at the folders that programs are made from: results of a study may lie elsewhere in
    # the tree.
    added = git("ls-files", "--others", "--exclude-standard", "-z", "src", "experiments", "scripts", "third_party")
    for path in sorted((added or "").split("\0")):
        if path:
            changes += f"\n{path}"
        if os.path.isfile(os.path.join(root, path)):
            with open(os.path.join(root, path), "rb") as file:
                changes += f" {hashlib.sha256(file.read()).hexdigest()}"
    return (head + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else "")
            + ("+SHOAL_BIN" if os.environ.get("SHOAL_BIN") else ""))


def facts(root):
    """A dictionary with FIELDS, all text."""
    return {
        "cpu": describe_cpu(_cpuinfo()),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory_gib": f"{memory_bytes() / 2**30:.0f}",
        "kernel": platform.release(),
        "commit": commit(root),
    }


def process_cpu_seconds(pid):
    """Processor time of a process that runs; 0 of one that does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory_bytes(pid):
    """The largest resident set that a running process has had."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status: no VmHWM")


class OtherLoad:
    """The number of cores that other processes than the study's own kept busy since this was made."""

    def __init__(self, own_cpu_seconds):
        """`own_cpu_seconds`: a function, the processor time of the study's own processes so far."""
        self._own = own_cpu_seconds
        self._start = time.monotonic(), self._busy(), own_cpu_seconds()

    @staticmethod
    def _busy():
        with open("/proc/stat", encoding="utf-8") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
        # user, nice, system, irq, softirq and steal: time that another guest takes counts, too.
        return sum(ticks[i] for i in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")

    def cores(self):
        wall, busy, own = self._start
        seconds = time.monotonic() - wall
        if seconds <= 0:
            return 0.0
        return max(0.0, (self._busy() - busy - (self._own() - own)) / seconds)


class _Watcher:
    """Looks at something again and again on a thread of its own, inside a `with`, and once more when that ends."""

    _TICK_S = 0.1

    def __init__(self):
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self):
        raise NotImplementedError

    def _watch(self):
        ended = False
        while not ended:
            ended = self._end.wait(self._TICK_S)
            self._look()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def processes_of(directory):
    """The processes that were started with a path in this directory on their command line."""
    pids = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = os.fsdecode(file.read()).split("\0")
        except OSError:
            continue
        if any(word == directory or word.startswith(directory + "/") for word in words):
            pids.append(int(name))
    return pids


def held_memory_bytes(pid):
    """Bytes of a process's memory without pages of files; 0 for a process that has ended."""
    held = 0
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith(("RssAnon:", "RssShmem:")):
                    held += int(line.split()[1]) * 1024
    except OSError:
        pass
    return held


def held_disk_bytes(directory, pids):
    """Bytes on disk of the files in a directory, and of files without a name that these processes have open."""
    files = {}  # by device and number: a file may be open several times

    def add(path, wanted):
        try:
            info = os.stat(path)
        except OSError:
            return  # gone meanwhile
        if stat.S_ISREG(info.st_mode) and wanted(info):
            files[info.st_dev, info.st_ino] = 512 * info.st_blocks

    for path, _, names in os.walk(directory):
        for name in names:
            add(os.path.join(path, name), lambda info: True)
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            add(f"/proc/{pid}/fd/{descriptor}", lambda info: info.st_nlink == 0)
    return sum(files.values())


class Use(_Watcher):
    """The most memory and disk that a deployment took at one time while this watched. To be used with `with`.

    Of all processes of the deployment and of the files in its directory. What other programs take does not count,
    nor what is only cached.
    """

    _TICK_S = 0.25

    def __init__(self, directory):
        """`directory`: the deployment's."""
        super().__init__()
        self._directory = os.path.abspath(directory)
        self.memory_bytes = self.disk_bytes = 0

    def _look(self):
        pids = processes_of(self._directory)
        self.memory_bytes = max(self.memory_bytes, sum(held_memory_bytes(pid) for pid in pids))
        self.disk_bytes = max(self.disk_bytes, held_disk_bytes(self._directory, pids))


class Pauses(_Watcher):
    """Notices when this process, and with it all that was started beside it, stood still for a while.

    A laptop may sleep, or someone may stop a job to have the machine alone: times that were taken meanwhile mean
    nothing. A pause that lasts until the work ends counts too. To be used with `with`.
    """

    def __init__(self):
        super().__init__()
        self.longest_s = 0.0

    def __enter__(self):
        self._before = time.time()
        return super().__enter__()

    def _look(self):
        # This clock goes on while a machine sleeps.
        now = time.time()
        self.longest_s = max(self.longest_s, now - self._before - self._TICK_S)
        self._before = now

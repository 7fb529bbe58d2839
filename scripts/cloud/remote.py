"""Commands on an experiment's machines, by ssh. Each machine's host key is known before the first connection."""

import concurrent.futures
import os
import shlex
import subprocess
import threading
import time

from cloud.aws import Failed, say

USER = "admin"  # of Debian's images
_REACHED_LIMIT_S = 300
_MOST_BYTES = 1 << 30
_FIRST_POLL_S, _LONGEST_POLL_S = 0.2, 10


def make_key(folder):
    """The operator's key for this experiment; returns the public half. The private one stays in the folder."""
    path = os.path.join(folder, "key")
    if not os.path.exists(path):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "shoal", "-f", path + ".part"], check=True)
        os.replace(path + ".part.pub", path + ".pub")
        os.replace(path + ".part", path)
    with open(path + ".pub", encoding="utf-8") as file:
        return file.read().strip()


class JobFailed(Failed):
    """A job ended with another exit code than 0."""

    def __init__(self, words, code):
        super().__init__(words)
        self.code = code


class _Together:
    """What runs side by side, and ends together."""

    def __init__(self):
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._processes = set()

    def begin(self, process):
        with self._lock:
            self._processes.add(process)
            if self.stopped.is_set():
                process.kill()

    def end(self, process):
        with self._lock:
            self._processes.remove(process)

    def stop(self):
        with self._lock:
            self.stopped.set()
            for process in self._processes:
                process.kill()


class Remote:
    """The machines of one experiment."""

    def __init__(self, folder, machines, host_keys):
        """`host_keys`: identifier -> "ssh-ed25519 AAAA..". """
        self._folder = folder
        self.machines = machines
        self.host_keys = host_keys
        self._here = threading.local()  # of a thread of `each`: its _Together
        with open(os.path.join(folder, "known_hosts"), "w", encoding="utf-8") as file:
            for machine in machines:
                file.write(f"{machine.public} {host_keys[machine.identifier]}\n")

    def _ssh(self, machine, command):
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", "UserKnownHostsFile=known_hosts",
                   "GlobalKnownHostsFile=/dev/null", "HostKeyAlgorithms=ssh-ed25519", "IdentitiesOnly=yes",
                   "ForwardAgent=no", "ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=4",
                   "LogLevel=ERROR"]
        return ["ssh", "-T", "-F", "/dev/null", "-i", "key", *(word for option in options for word in ("-o", option)),
                f"{USER}@{machine.public}", command]

    def _together(self):
        """What the thread is part of: on its own, it is interrupted as any program is."""
        if not hasattr(self._here, "together"):
            self._here.together = _Together()
        return self._here.together

    def _pause(self, machine, pause_s):
        """Raises Failed if what runs beside it has failed, or was interrupted."""
        if self._together().stopped.wait(pause_s):
            raise Failed(f"{machine}: stopped")

    def _try(self, machine, command, given, limit_s):
        """(exit code, standard output, end of standard error)."""
        with open(os.path.join(self._folder, f"ssh-{machine}.log"), "a+b") as words:
            words.seek(0, os.SEEK_END)
            begin = words.tell()
            # In a session of its own: Ctrl-C is for this program, which decides what ends.
            process = subprocess.Popen(self._ssh(machine, command), cwd=self._folder, stderr=words,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            together = self._together()
            together.begin(process)
            over = threading.Timer(limit_s, process.kill)
            over.start()
            # A machine that takes nothing and says nothing must not stop this one.
            feeder = threading.Thread(target=_feed, args=(process.stdin, given))
            feeder.start()
            try:
                said = process.stdout.read(_MOST_BYTES + 1)
                if len(said) > _MOST_BYTES:
                    process.kill()
                    raise Failed(f"{machine}: more than {_MOST_BYTES} bytes came")
                code = process.wait()
            finally:
                over.cancel()
                process.kill()
                together.end(process)
                feeder.join()
                process.stdout.close()
            words.seek(begin)
            return code, said, words.read(1 << 16).decode(errors="replace").strip()[-1000:]

    def run(self, machine, command, given=b"", limit_s=600):
        """Standard output of a shell command that succeeds; `given` is its standard input. Raises Failed."""
        code, said, words = self._try(machine, "set -eu; PATH=$HOME/programs/shoal:$HOME/programs/shoald:$PATH; "
                                      "umask 077; " + command, given, limit_s)
        if code != 0:
            raise Failed(f"{machine}: {command.strip().splitlines()[0][:80]}: exit code {code}: {words}")
        return said

    def put(self, machine, path, content):
        """Writes a file; the path is relative to the user's home."""
        name = shlex.quote(path)
        self.run(machine, f"mkdir -p $(dirname {name}); cat >{name}", content)

    def reach(self):
        """Waits until every machine takes commands. Raises Failed."""
        self.each(self.machines, self._reach)

    def _reach(self, machine):
        say(f"waiting: ssh to {machine}")
        begun, pause_s = time.monotonic(), _FIRST_POLL_S
        while True:
            code, _, words = self._try(machine, "true", b"", 60)
            if code == 0:
                return
            if "verification failed" in words:
                raise Failed(f"{machine}: another host answers at {machine.public}: {words}")
            if time.monotonic() - begun > _REACHED_LIMIT_S:
                raise Failed(f"{machine}: cannot be reached by ssh; is operator_cidr this machine's address? {words}")
            self._pause(machine, pause_s)
            pause_s = min(_LONGEST_POLL_S, pause_s * 1.5)

    def each(self, machines, do):
        """`do` with each machine, side by side. Raises what the first of them raised, which stops the others."""
        if not machines:
            return []
        together = _Together()

        def one(machine):
            self._here.together = together
            return do(machine)

        pool = concurrent.futures.ThreadPoolExecutor(len(machines))
        try:
            parts = [pool.submit(one, machine) for machine in machines]
            waiting = set(parts)
            while waiting:
                # In short pieces: a signal that comes just before a wait is seen only after it.
                done, waiting = concurrent.futures.wait(waiting, 1, concurrent.futures.FIRST_COMPLETED)
                for part in done:
                    part.result()
            return [part.result() for part in parts]
        finally:
            # Before anything is removed. Where all are done this stops nothing.
            together.stop()
            pool.shutdown(wait=False, cancel_futures=True)

    def job(self, machine, name, command, limit_s):
        """A command that goes on when the connection ends; waits for it, and shows the last line of what it says.

        Raises JobFailed, with its exit code, and Failed.
        """
        folder = f"jobs/{name}"
        script = f'umask 077; ({command})\necho "$?" >{folder}/code.part; mv {folder}/code.part {folder}/code'
        self.run(machine, f"mkdir -p jobs; rm -rf {folder}; mkdir {folder}; "
                 f"setsid -f bash -c {shlex.quote(script)} >{folder}/log 2>&1 </dev/null")
        begun, pause_s, said = time.monotonic(), _FIRST_POLL_S, 0
        while True:
            self._pause(machine, pause_s)
            pause_s = min(_LONGEST_POLL_S, pause_s * 1.5)
            code, state, words = self._try(
                machine, f"cat {folder}/code 2>/dev/null || (echo; tail -n 1 {folder}/log | cut -c 1-150)", b"", 60)
            first, _, last = state.decode(errors="replace").partition("\n")
            if code == 0 and first.isdigit():
                if first != "0":
                    end = self.run(machine, f"tail -n 5 {folder}/log").decode(errors="replace").strip()
                    raise JobFailed(f"{machine}: {name}: exit code {first}: {end}", int(first))
                return
            passed = time.monotonic() - begun
            if passed > limit_s:
                raise Failed(f"{machine}: {name}: not within {limit_s} s: {words}")
            if passed - said > 15:
                said = passed
                printable = "".join(c if c.isprintable() else "?" for c in last.strip())
                say(f"{machine}: {name}: {passed:.0f} s: {printable or words}")


def _feed(pipe, given):
    try:
        with pipe:
            pipe.write(given)
    except OSError:
        pass  # the command ended; its exit code says why

"""An OCI image layout of Debian packages and the shared libraries of their programs.

Two layers: Debian's packages that have the libraries, as this machine has them installed, and ours. There is no shell in
the image, nor anything else that the programs do not need. https://github.com/opencontainers/image-spec has the format.
"""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import time

import debs

# Who runs shoald in a container; configs/kubernetes uses the same number.
USER = 10001

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _output(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def libraries(files):
    """The shared libraries that the programs, or libraries, load, by path."""
    found = set()
    for file in files:
        found |= set(re.findall(r"(/\S+) \(0x", _output("ldd", file)))
    return sorted(found)


def owners(paths):
    """The installed packages that have the files."""
    # Before /lib became a link to /usr/lib a file was in either.
    both = {path: (path, path[4:] if path.startswith("/usr/lib") else f"/usr{path}") for path in paths}
    said = subprocess.run(["dpkg-query", "--search", *sorted({name for names in both.values() for name in names})], check=False,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    # "libc6:amd64: /lib/..."; not "diversion by ..".
    known = {file: package for package, file in re.findall(r"^([a-z0-9][a-z0-9+.-]*(?::\w+)?): (/.*)$", said, flags=re.MULTILINE)}
    found = set()
    for path, names in both.items():
        packages = [known[name] for name in names if name in known]
        if not packages:
            raise RuntimeError(f"no package has {path}")
        found.add(packages[0])
    return sorted(found)


def packages_of_libraries(files):
    """Debian's packages of the libraries that the programs, or libraries, load."""
    return owners(libraries(files))


class _Layer:
    """A tar archive with its members in order, all of one time, with parents before children."""

    def __init__(self, seconds):
        self._seconds = seconds
        self._members = {}

    def add(self, path, kind, mode, data=b"", link="", user=0):
        """`path` relative to the root; /lib and others are links into /usr, as in Debian."""
        path = re.sub(r"^(bin|sbin|lib|lib32|lib64|libx32)(?=/)", r"usr/\1", path)
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.mtime, info.linkname = kind, mode, self._seconds, link
        info.uid = info.gid = user
        info.size = len(data)
        self._members[path] = (info, data)
        parent = os.path.dirname(path)
        if parent and parent not in self._members:
            self.add(parent, tarfile.DIRTYPE, 0o755)

    def file(self, path, text, mode=0o644):
        self.add(path, tarfile.REGTYPE, mode, text.encode())

    def tar(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted(self._members):
                info, data = self._members[path]
                archive.addfile(info, io.BytesIO(data))
        return out.getvalue()


# What of a package of libraries is no use here. Copyrights stay.
_LEFT_OUT = re.compile(r"/usr/share/(?!doc/[^/]+/copyright$)")


def _system_layer(packages, seconds):
    layer = _Layer(seconds)
    for folder in ("bin", "lib", "sbin", "lib64"):
        layer.add(f"usr/{folder}", tarfile.DIRTYPE, 0o755)
        layer.add(folder, tarfile.SYMTYPE, 0o777, link=f"usr/{folder}")
    for package in packages:
        for path in _output("dpkg-query", "--listfiles", package).splitlines():
            if path in ("/.", "") or _LEFT_OUT.match(path):
                continue
            if os.path.islink(path):
                # Links between /lib and /usr/lib lead to the same file.
                layer.add(path[1:], tarfile.SYMTYPE, 0o777, link=os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    layer.add(path[1:], tarfile.REGTYPE, os.stat(path).st_mode & 0o755, file.read())
        # Scanners of images read here what is installed.
        name = package.split(":")[0]
        layer.file(f"var/lib/dpkg/status.d/{name}", _output("dpkg-query", "--status", package))
    layer.file("etc/passwd", f"root:x:0:0:root:/root:/usr/sbin/nologin\nshoal:x:{USER}:{USER}::/var/lib/shoal:/usr/sbin/nologin\n")
    layer.file("etc/group", f"root:x:0:\nshoal:x:{USER}:\n")
    layer.file("etc/nsswitch.conf", "hosts: files dns\n")
    layer.add("tmp", tarfile.DIRTYPE, 0o1777)
    layer.add("var/lib/shoal", tarfile.DIRTYPE, 0o700, user=USER)
    return layer.tar()


def _own_layer(packages, seconds):
    layer = _Layer(seconds)
    for package in packages:
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                path = member.name.removeprefix("./").strip("/")
                if member.isreg():
                    layer.add(path, tarfile.REGTYPE, member.mode, archive.extractfile(member).read())
                elif member.issym():
                    layer.add(path, tarfile.SYMTYPE, 0o777, link=member.linkname)
                elif not member.isdir():
                    raise RuntimeError(f"{package} has {member.name}, which is no file")
        layer.file(f"var/lib/dpkg/status.d/{os.path.basename(package).split('_')[0]}", _output("dpkg-deb", "--field", package))
    return layer.tar()


def write(packages, programs, number, commit, seconds, out):
    """The layout, in the new folder `out`, of the packages shoal and shoald among the paths `packages`."""
    names = ["shoal", "shoald"]
    ours = sorted(path for path in packages if os.path.basename(path).split("_")[0] in names)
    files = [f"{programs}/{debs.PROGRAMS[name][0]}" for name in names]
    os.makedirs(f"{out}/blobs/sha256")

    def blob(data, media_type, **more):
        digest = hashlib.sha256(data).hexdigest()
        with open(f"{out}/blobs/sha256/{digest}", "wb") as file:
            file.write(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data), **more}

    def as_json(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    architecture = _ARCHITECTURES[os.uname().machine]
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    layers, histories, plain = [], [], []
    for what, tar in (("libraries, from Debian's packages", _system_layer(packages_of_libraries(files), seconds)),
                      (" and ".join(names), _own_layer(ours, seconds))):
        layers.append(blob(gzip.compress(tar, 6, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip"))
        plain.append(f"sha256:{hashlib.sha256(tar).hexdigest()}")
        histories.append({"created": created, "created_by": what})
    labels = {
        "org.opencontainers.image.title": "shoal",
        "org.opencontainers.image.description": "private lookups in public tables",
        "org.opencontainers.image.version": number,
        "org.opencontainers.image.revision": commit,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = blob(as_json({
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["/usr/bin/shoald", "--config", "/var/lib/shoal/party.textproto", "--log-format", "json"],
            "WorkingDir": "/var/lib/shoal",
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": plain},
        "history": histories,
    }), "application/vnd.oci.image.config.v1+json")
    manifest = blob(as_json({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": layers,
        "annotations": {**labels, "org.opencontainers.image.created": created},
    }), "application/vnd.oci.image.manifest.v1+json", platform={"architecture": architecture, "os": "linux"},
        annotations={"org.opencontainers.image.ref.name": number.replace("~", "-")})
    with open(f"{out}/index.json", "wb") as file:
        file.write(as_json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}))
    with open(f"{out}/oci-layout", "w", encoding="utf-8") as file:
        file.write('{"imageLayoutVersion":"1.0.0"}')

"""What scripts/package makes: the same each time, complete, and as those who read it want it."""

import copy
import glob
import gzip
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import debs
import version

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = os.environ["SHOAL_PROGRAMS"]
COMMIT, SECONDS, COMMITS = "0123456789abcdef0123456789abcdef01234567", 1_790_000_000, 1234


def load_script():
    loader = importlib.machinery.SourceFileLoader("package", f"{TREE}/scripts/package")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("package", loader))
    loader.exec_module(module)
    return module


def output(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


class BadImage(Exception):
    pass


def read_image(layout):
    """(configuration, [tar of each layer]) of an image layout whose digests, sizes and media types are all right."""
    def blob(descriptor, media_type):
        if descriptor["mediaType"] != media_type:
            raise BadImage(f"{descriptor['mediaType']} in place of {media_type}")
        algorithm, _, digest = descriptor["digest"].partition(":")
        with open(f"{layout}/blobs/{algorithm}/{digest}", "rb") as file:
            data = file.read()
        if algorithm != "sha256" or hashlib.sha256(data).hexdigest() != digest or len(data) != descriptor["size"]:
            raise BadImage(f"blob {digest} is another")
        named.add(digest)
        return data

    named = set()
    with open(f"{layout}/oci-layout", encoding="utf-8") as file:
        if json.load(file) != {"imageLayoutVersion": "1.0.0"}:
            raise BadImage("oci-layout")
    with open(f"{layout}/index.json", encoding="utf-8") as file:
        index = json.load(file)
    if index["schemaVersion"] != 2 or len(index["manifests"]) != 1:
        raise BadImage("index.json")
    manifest = json.loads(blob(index["manifests"][0], "application/vnd.oci.image.manifest.v1+json"))
    config = json.loads(blob(manifest["config"], "application/vnd.oci.image.config.v1+json"))
    layers = [gzip.decompress(blob(layer, "application/vnd.oci.image.layer.v1.tar+gzip")) for layer in manifest["layers"]]
    if [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers] != config["rootfs"]["diff_ids"]:
        raise BadImage("diff_ids")
    if set(os.listdir(f"{layout}/blobs/sha256")) != named:
        raise BadImage("blobs that nothing names")
    return config, layers


class PackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.package = load_script()
        # As different as two machines would be: places, zones, languages, and who may read new files.
        for number, (place, environment, mask) in enumerate([
                ("first", {"TZ": "UTC", "LC_ALL": "C.UTF-8"}, 0o022), ("another/place", {"TZ": "Pacific/Chatham", "LC_ALL": "C"}, 0o077)]):
            scratch = f"{cls.folder}/scratch/{place}"
            os.makedirs(scratch)
            done = subprocess.run(
                [f"{TREE}/scripts/package", "--programs", PROGRAMS, "--commit", COMMIT, "--time", str(SECONDS),
                 "--commits", str(COMMITS), "--out", f"{cls.folder}/out-{number}"], env={**os.environ, **environment, "TMPDIR": scratch}, check=False, text=True,
                stderr=subprocess.PIPE, preexec_fn=lambda mask=mask: os.umask(mask))
            if done.returncode != 0 or os.listdir(scratch):
                raise RuntimeError(f"scripts/package: {done.returncode}: {done.stderr} {os.listdir(scratch)}")
        cls.out = f"{cls.folder}/out-0"

    def one(self, pattern):
        [path] = glob.glob(f"{self.out}/{pattern}")
        return path

    def test_packing_twice_makes_the_same_bytes(self):
        other = f"{self.folder}/out-1"
        self.assertEqual(self.package.differences(self.out, other), [])
        self.assertEqual(output("sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS", cwd=self.out), "")
        with open(f"{self.out}/SHA256SUMS", encoding="utf-8") as sums:
            self.assertEqual(len(sums.readlines()) + 1, sum(len(names) for _, _, names in os.walk(self.out)))

    def test_a_byte_that_differs_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(self.out, f"{folder}/changed")
            [name] = [os.path.basename(path) for path in glob.glob(f"{folder}/changed/shoald_*.deb")]
            with open(f"{folder}/changed/{name}", "r+b") as file:
                file.seek(1000)
                byte = file.read(1)
                file.seek(1000)
                file.write(bytes([byte[0] ^ 1]))
            os.remove(f"{folder}/changed/SHA256SUMS")
            self.assertEqual(self.package.differences(self.out, f"{folder}/changed"), ["SHA256SUMS", name])

    def test_packages_have_what_they_need(self):
        for name in ("libshoal1", "shoal", "shoald", "shoal-mpi"):
            path = self.one(f"{name}_*.deb")
            field = {key: output("dpkg-deb", "--field", path, key).strip() for key in ("Version", "Depends")}
            self.assertRegex(field["Version"], rf"^[0-9.]+(~git20260921\d{{6}}\.{COMMITS}\.{COMMIT[:8]})?$")
            self.assertIn("libsodium23", field["Depends"])
            files = output("dpkg-deb", "--contents", path)
            self.assertNotIn("2026-09-22", files)
            for line in files.splitlines():
                self.assertRegex(line, r"^[-dl][rwx-]{9} root/root ", "no set-user-id, owned by root")
                self.assertIn("2026-09-2", line, "the time of the commit")
        self.assertIn("openmpi-bin", field["Depends"])

    def test_the_page_names_what_an_installed_machine_needs(self):
        with open(f"{TREE}/docs/install.md", encoding="utf-8") as file:
            rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", file.read().partition("## What an installed machine needs")[2],
                                   flags=re.MULTILINE))
        depends = output("dpkg-deb", "--field", self.one("libshoal1_*.deb"), "Depends")
        self.assertEqual(set(re.findall(r"(?:^|, )([a-z0-9][a-z0-9+.-]*)", depends)),
                         set(re.findall(r"[^` ]+", rows["shoal"])) - {"libboost-program-options1.81.0"})
        documented = set()
        for name in ("shoal", "shoald", "shoal-mpi"):  # each has what the one before has
            documented |= {word for code in re.findall(r"`([^`]*)`", rows[name]) for word in code.split()}
            depends = output("dpkg-deb", "--field", self.one(f"{name}_*.deb"), "Depends")
            needed = set(re.findall(r"(?:^|, )([a-z0-9][a-z0-9+.-]*)", depends)) - {"shoald", "systemd"}
            needed = {"libspdlog1.10" if word == "libspdlog1.10-fmt9" else word for word in needed}
            own = documented - {"systemd-standalone-sysusers"}
            self.assertEqual(needed - own, set(), f"docs/install.md lacks what {name} needs")
            if name != "shoal-mpi":
                self.assertEqual(own - needed, set(), f"docs/install.md says more than {name} needs")

    def maintainers(self, user="", party=False, steps=()):
        """Runs scripts of the packages, "PACKAGE SCRIPT ARGUMENT..", where /var/lib is empty, with tools that know one file of users.

        `user` is the line of a user that is there, `party` whether a party's key is. Returns (the user's line, whether
        the key is there, what is left in /var/lib, what was said).
        """
        with tempfile.TemporaryDirectory() as folder:
            for name in ("shoald", "shoal-mpi"):
                subprocess.run(["dpkg-deb", "--control", self.one(f"{name}_*.deb"), f"{folder}/{name}"], check=True)
            debs.write(f"{folder}/users", user)
            made = "shoal:x:994:994:A party of Shoal:/var/lib/shoal:/usr/sbin/nologin"
            for name, text in {
                    "getent": '[ "$1 $2" = "passwd shoal" ] && grep . "$USERS"',
                    "systemd-sysusers": f'grep -q . "$USERS" || echo "{made}" >"$USERS"',
                    "userdel": '[ "$1" = shoal ] && : >"$USERS"',
                    "usermod": '[ "$1 $3" = "--shell shoal" ] && sed -i "s|[^:]*$|$2|" "$USERS"',
                    "install": 'a=; for w; do case $w in -o | -g) s=1 ;; *) [ "$s" ] || a="$a $w"; s= ;; esac; done; /usr/bin/install $a',
                    "deb-systemd-helper": ":", "deb-systemd-invoke": ":", "systemctl": ":"}.items():
                debs.write(f"{folder}/bin/{name}", f"#!/bin/sh\ns=\n{text}\n")
                os.chmod(f"{folder}/bin/{name}", 0o755)
            script = "mount -t tmpfs tmpfs /var/lib\n"
            if party:
                script += "mkdir -p /var/lib/shoal/keys && echo key >/var/lib/shoal/keys/bls.key\n"
            for step in steps:
                package, name, *arguments = step.split()
                script += f"if [ -e {folder}/{package}/{name} ]; then {folder}/{package}/{name} {' '.join(arguments)}; fi\n"
            script += f"if [ -e /var/lib/shoal/keys/bls.key ]; then echo yes >{folder}/key; fi; ls /var/lib >{folder}/left\n"
            done = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-ec", script], check=False, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={"PATH": f"{folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USERS": f"{folder}/users"})
            if done.returncode != 0 and subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False,
                                                       stderr=subprocess.DEVNULL).returncode != 0:
                self.skipTest("namespaces are not permitted here")
            self.assertEqual(done.returncode, 0, done.stdout)
            with open(f"{folder}/users", encoding="utf-8") as users, open(f"{folder}/left", encoding="utf-8") as left:
                return users.read().strip(), os.path.exists(f"{folder}/key"), left.read().split(), done.stdout

    INSTALL = ("shoald postinst configure", "shoal-mpi postinst configure")
    REMOVE = ("shoal-mpi postrm remove", "shoald postrm remove")
    PURGE = ("shoal-mpi postrm purge", "shoald postrm purge")

    def test_a_purge_removes_what_the_packages_made_and_nothing_else(self):
        made, theirs = "shoal:x:994:994:A party of Shoal:/var/lib/shoal", "shoal:x:1001:1001:Somebody:/home/shoal:/bin/bash"
        everything = self.INSTALL + self.REMOVE + self.PURGE
        self.assertEqual(self.maintainers(steps=everything), ("", False, [], ""))
        # A party's keys, whoever made the directory, and the user whose they are. What is said erases both.
        for steps in (everything, self.INSTALL + self.REMOVE + self.INSTALL[:1] + self.PURGE):
            user, key, left, said = self.maintainers(party=True, steps=steps)
            self.assertEqual((user, key, left), (f"{made}:/usr/sbin/nologin", True, ["shoal"]))
            self.assertIn("rm -r /var/lib/shoal && userdel shoal", said)
        # A user that was there before, with and without a party; one whom the operator has put in the place of ours.
        self.assertEqual(self.maintainers(user=theirs, steps=everything)[:3], (theirs, False, []))
        self.assertEqual(self.maintainers(user=theirs, party=True, steps=everything)[:3], (theirs, True, ["shoal"]))
        # Twice, as dpkg runs a script again that failed.
        self.assertEqual(self.maintainers(steps=self.INSTALL + self.INSTALL + self.REMOVE + self.PURGE + self.PURGE), ("", False, [], ""))

    def test_the_user_of_a_party_of_several_machines_has_a_shell(self):
        made, theirs = "shoal:x:994:994:A party of Shoal:/var/lib/shoal", "shoal:x:1001:1001:Somebody:/home/shoal"
        self.assertEqual(self.maintainers(steps=self.INSTALL[:1])[0], f"{made}:/usr/sbin/nologin")
        self.assertEqual(self.maintainers(steps=self.INSTALL)[0], f"{made}:/bin/sh")
        self.assertEqual(self.maintainers(steps=self.INSTALL + self.REMOVE[:1])[0], f"{made}:/usr/sbin/nologin")
        # Not one whom no package has made: it is said.
        user, _, _, said = self.maintainers(user=f"{theirs}:/usr/sbin/nologin", steps=self.INSTALL)
        self.assertEqual(user, f"{theirs}:/usr/sbin/nologin")
        self.assertIn("usermod --shell /bin/sh shoal", said)
        self.assertEqual(self.maintainers(user=f"{theirs}:/bin/bash", steps=self.INSTALL + self.REMOVE)[::3], (f"{theirs}:/bin/bash", ""))

    def test_lintian_finds_nothing(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", *glob.glob(f"{self.out}/*.deb")], check=False,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_bill_of_materials_is_valid_and_whole(self):
        with open(self.one("*.cdx.json"), encoding="utf-8") as file:
            text = file.read()
        validator = JsonStrictValidator(SchemaVersion.V1_5)
        self.assertIsNone(validator.validate_str(text))
        bill = json.loads(text)
        wrong = copy.deepcopy(bill)
        wrong["components"][0]["type"] = "no such type"
        self.assertIsNotNone(validator.validate_str(json.dumps(wrong)))

        refs = {component["bom-ref"]: component for component in bill["components"]}
        own = bill["metadata"]["component"]["bom-ref"]
        for dependency in bill["dependencies"]:
            self.assertLessEqual({*dependency["dependsOn"]}, {*refs})
            self.assertIn(dependency["ref"], {*refs, own})
        for crate in ("aegis", "blst"):
            with open(f"{TREE}/third_party/{crate}/Cargo.lock", encoding="utf-8") as file:
                locked = re.search(rf'name = "{crate}"\nversion = "(.*)"\n.*\nchecksum = "(.*)"', file.read())
            self.assertEqual(refs[f"pkg:cargo/{crate}@{locked[1]}"]["hashes"], [{"alg": "SHA-256", "content": locked[2]}])
        needs = {dependency["ref"]: dependency["dependsOn"] for dependency in bill["dependencies"]}
        for name in ("libshoal1", "shoal", "shoald", "shoal-mpi"):
            program = {"libshoal1": "libshoal", "shoal-mpi": "shoald-machines"}.get(name, name)
            # What the package depends on by dpkg-shlibdeps is in the bill, with the version of this machine.
            for library in re.findall(r"\b(lib[a-z0-9.+-]+)", output("dpkg-deb", "--field", self.one(f"{name}_*.deb"), "Depends")):
                if library == "libspdlog1.10-fmt9":
                    library = "libspdlog1.10"  # which provides it
                found = [ref for ref in needs[f"program:{program}"] if ref.startswith(f"pkg:deb/debian/{library.replace('+', '%2B')}@")]
                self.assertEqual(len(found), 1, library)
                self.assertEqual(refs[found[0]]["version"], output("dpkg-query", "-Wf", "${Version}", library))
        # The digests are of the files that people get, whose symbols are stripped.
        with tempfile.TemporaryDirectory() as folder:
            for path in glob.glob(f"{self.out}/*.deb"):
                subprocess.run(["dpkg-deb", "--extract", path, folder], check=True)
            files = {f"program:{name}": f"{folder}/usr/bin/{name}" for name in debs.PROGRAMS}
            [files["program:libshoal"]] = glob.glob(f"{folder}/usr/lib/*/libshoal.so.1")
            files["program:shoal-static"] = self.one("*-static")
            self.assertEqual(set(files), {ref for ref in refs if ref.startswith("program:")})
            for ref, path in files.items():
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                self.assertEqual(refs[ref]["hashes"], [{"alg": "SHA-256", "content": digest}], ref)
        tests = [c for c in bill["components"] if c.get("purl", "").startswith("pkg:pypi/")]
        with open(f"{TREE}/scripts/requirements.txt", encoding="utf-8") as file:
            self.assertEqual(len(tests), len(file.readlines()))
        self.assertEqual({component["scope"] for component in tests}, {"excluded"})

    def test_the_image_is_one_and_runs(self):
        layout = self.one("*.oci")
        config, layers = read_image(layout)
        self.assertEqual(config["config"]["User"], "10001:10001")
        with tempfile.TemporaryDirectory() as root:
            for layer in layers:
                with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                    names = archive.getnames()
                    self.assertEqual(names, sorted(names))
                    for member in archive:
                        self.assertEqual(member.mtime, SECONDS)
                        self.assertEqual(member.mode & 0o6000, 0, member.name)
                        self.assertTrue(member.isdir() or member.issym() or member.isreg(), member.name)
                    archive.extractall(root)  # noqa: S202: it is our own
            self.assertFalse(os.path.exists(f"{root}/bin/sh"))
            for program in ("shoal", "shoald"):
                # By the image's own loader, and with its libraries alone: one that it lacks is not found.
                if os.getuid() == 0:
                    command = ["/usr/sbin/chroot", "--userspec=10001:10001", root, f"/usr/bin/{program}"]
                else:
                    command = [f"{root}/lib64/ld-linux-x86-64.so.2", "--inhibit-cache", "--library-path",
                               f"{root}/usr/lib/x86_64-linux-gnu", f"{root}/usr/bin/{program}"]
                os.chmod(root, 0o755)
                self.assertRegex(output(*command, "--version"), rf"^{program} [0-9.]+(-dev)?\n$")

    def test_an_image_with_a_wrong_byte_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            layout = f"{folder}/image"
            shutil.copytree(self.one("*.oci"), layout)
            for blob in glob.glob(f"{layout}/blobs/sha256/*"):
                with open(blob, "r+b") as file:
                    file.seek(20)
                    before = file.read(1)
                    file.seek(20)
                    file.write(bytes([before[0] ^ 1]))
                with self.assertRaises((BadImage, ValueError)):
                    read_image(layout)
                with open(blob, "r+b") as file:
                    file.seek(20)
                    file.write(before)
            read_image(layout)

    def test_the_static_program_needs_no_library(self):
        path = self.one("*-static")
        headers = output("readelf", "--program-headers", "--wide", path)
        self.assertIn("DYN (Position-Independent Executable file)", headers)
        self.assertNotIn("INTERP", headers)
        self.assertNotIn("NEEDED", output("readelf", "--dynamic", path))
        self.assertRegex(output(path, "--version"), r"^shoal [0-9.]+(-dev)?\n$")
        # The same commands as the other one.
        self.assertEqual(output(path, "--describe"), output(f"{PROGRAMS}/{debs.PROGRAMS['shoal'][0]}", "--describe"))

    def test_a_program_in_c_is_built_and_python_finds_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libshoal1", "libshoal-dev", "python3-shoal"):
                subprocess.run(["dpkg-deb", "--extract", self.one(f"{name}_*.deb"), folder], check=True)
            [library] = glob.glob(f"{folder}/usr/lib/*/libshoal.so.1")
            place = os.path.dirname(library)
            environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": place}
            with open(f"{place}/pkgconfig/shoal.pc", encoding="utf-8") as file:
                text = file.read()
            self.assertNotIn("@", text)
            self.assertIn(f"libdir={place.removeprefix(folder)}\n", text)
            self.assertIn(f"Version: {version.program_version(TREE)}\n", text)
            subprocess.run(["cc", f"{folder}/usr/share/doc/libshoal-dev/examples/example.c", "-o", f"{folder}/example",
                            "-I", f"{folder}/usr/include", "-L", place, "-lshoal"], check=True)
            self.assertIn("libshoal.so.1", output("readelf", "--dynamic", f"{folder}/example"))
            self.assertIn(library, output("ldd", f"{folder}/example", env=environment))
            said = output("/usr/bin/python3", "-B", "-c", "import shoal; print(shoal.__file__, shoal.__version__)",
                          env={**environment, "PYTHONPATH": f"{folder}/usr/lib/python3/dist-packages"})
            self.assertEqual(said, f"{folder}/usr/lib/python3/dist-packages/shoal/__init__.py {version.program_version(TREE).replace('-dev', '.dev0')}\n")

    def test_units_name_the_programs_of_the_packages(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, program in (("shoald", "shoald"), ("shoal-mpi", "party-machines")):
                subprocess.run(["dpkg-deb", "--extract", self.one(f"{name}_*.deb"), folder], check=True)
                unit = "shoald" if name == "shoald" else "shoald-machines"
                with open(f"{folder}/lib/systemd/system/{unit}.service", encoding="utf-8") as file:
                    text = file.read()
                self.assertNotIn("/usr/local", text)
                self.assertTrue(text.startswith("[Unit]\n"))
                [command] = re.findall(r"^ExecStart=(\S+)", text, flags=re.MULTILINE)
                self.assertEqual(command, f"/usr/bin/{program}")
                self.assertTrue(os.access(folder + command, os.X_OK))
            # Those of a user who watches keys.
            subprocess.run(["dpkg-deb", "--extract", self.one("shoal_*.deb"), folder], check=True)
            with open(f"{folder}/usr/share/doc/shoal/examples/shoal-watch.service", encoding="utf-8") as file:
                self.assertIn("\nExecStart=/usr/bin/shoal watch --file ", file.read())
            self.assertTrue(os.path.exists(f"{folder}/usr/share/doc/shoal/examples/shoal-watch.timer"))
            # That of an operator who runs a door.
            with open(f"{folder}/usr/share/doc/shoald/examples/shoal-door.service", encoding="utf-8") as file:
                self.assertIn("\nExecStart=/usr/bin/shoal-door --config ", file.read())
            self.assertTrue(os.access(f"{folder}/usr/bin/shoal-door", os.X_OK))
            # And of one who also builds shoal-ohttp.
            for name in ("shoal-ohttp.service", "shoal-ohttp.sysusers"):
                with open(f"{folder}/usr/share/doc/shoald/examples/{name}", "rb") as file, open(f"{TREE}/configs/{name}", "rb") as of_tree:
                    self.assertEqual(file.read(), of_tree.read())
            # What the comments of the default file propose is what the unit reads.
            with open(f"{folder}/etc/default/shoald", encoding="utf-8") as file:
                proposed = re.findall(r"^#(\w+)=", file.read(), flags=re.MULTILINE)
            with open(f"{folder}/lib/systemd/system/shoald.service", encoding="utf-8") as file:
                text = file.read()
            self.assertEqual(sorted(proposed), sorted(set(re.findall(r"\$\{?(SHOALD_\w+)", text))))


if __name__ == "__main__":
    unittest.main()

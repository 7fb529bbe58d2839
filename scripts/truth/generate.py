"""Random inputs of `shoal audit` and OSV records about what they name, each made from a seed and a number alone.

Every maker writes its format by hand, in all the notations that the format allows and that its own tools never write:
those are what a reader gets wrong. A part of the inputs is then broken at a few places. Names and versions come from
small sets, so that records are about packages that are there, and bounds lie near their versions.
"""

import dataclasses
import json
import random
import string
import urllib.parse

# A part of the inputs is broken after it was made.
BROKEN = 0.15


@dataclasses.dataclass
class Case:
    format: str
    name: str  # of the file
    content: bytes
    records: list  # OSV records, as bytes
    distribution: str = "Debian:12"
    # A record of the table has so many bytes at most.
    max_bytes: int = 60000


NAMES = {
    "PyPI": ["barge", "tide-glass", "reef-net", "a", "zope-interface", "kelp2"],
    "npm": ["lodash", "@tide/reef", "JSONStream", "left-pad", "a.b", "@x/lodash", "reef_net"],
    "crates.io": ["barnacle", "serde_json", "Inflector", "kelp-core", "x"],
    "Go": ["golang.org/x/text", "github.com/Azure/sdk-for-go", "code.example.org/fishing/net/v5", "gopkg.in/yaml.v2",
           "code.example.org/fishing/net", "github.com/tide/reef", "stdlib"],
    "GitHub Actions": ["actions/checkout", "Tide/reef-action", "tide/cache"],
    "Debian:12": ["linux", "openssl", "barge", "g++-tide", "libkelp1.2"],
}
NAMES["Ubuntu:22.04:LTS"] = NAMES["Debian:12"]


def one(rng, *choices):
    return rng.choice(choices)


def number(rng):
    return one(rng, "0", "1", "1", "2", "3", "9", "10", "11")


def pep440(rng, odd=True):
    text = one(rng, "", "", "", "", "", "", "v", "1!", "0!") if odd else ""
    text += ".".join(number(rng) for _ in range(one(rng, 1, 2, 2, 3, 3, 4)))
    gap = lambda: one(rng, "", "", ".", "-", "_") if odd else ""  # noqa: E731
    if rng.random() < 0.25:
        text += gap() + one(rng, "a", "b", "rc", *(["c", "alpha", "beta", "pre", "preview", "RC"] if odd else []))
        text += gap() + number(rng)
    if rng.random() < 0.2:
        text += one(rng, "-" + number(rng), gap() + one(rng, "post", "rev", "r") + gap() + number(rng)) if odd else ".post" + number(rng)
    if rng.random() < 0.15:
        text += (gap() or ".") + "dev" + (gap() if odd else "") + number(rng)
    if rng.random() < 0.2:
        text += "+" + one(rng, "cpu", "cu117", "1", "local.1", "1.local", *(["Ubuntu-2", "0"] if odd else []))
    return text


def semver(rng, lead=""):
    text = lead + ".".join(number(rng) for _ in range(3))
    if rng.random() < 0.25:
        text += "-" + ".".join(one(rng, "0", "1", "10", "alpha", "beta", "a-b", "-", "1a", "rc1", "rc")
                               for _ in range(rng.randint(1, 3)))
    if rng.random() < 0.1:
        text += "+" + one(rng, "abc", "001", "a.b")
    return text


def go_version(rng):
    if rng.random() < 0.2:
        base = one(rng, "v0.0.0-", "v1.2.0-pre.0.", "v1.1.2-0.")
        return base + one(rng, "20190101000000-abcdef012345", "20210101000000-0123456789ab")
    text = "v" + ".".join(number(rng) for _ in range(3))
    if rng.random() < 0.2:
        text += "-" + one(rng, "rc.1", "rc1", "beta", "alpha.2")
    return text + ("+incompatible" if rng.random() < 0.1 else "")


def debian(rng):
    part = lambda: "".join(one(rng, "0", "1", "9", "10", ".", "~", "+", "a", "z", "rc")  # noqa: E731
                           for _ in range(rng.randint(1, 4)))
    text = one(rng, "", "", "", "0:", "1:", "2:") + one(rng, "0", "1", "2", "9")
    text += one(rng, "", "." + number(rng), "." + number(rng), part())
    return text + one(rng, "", "-" + one(rng, "1", "2", "10"), "-1", "-1+b1", "-1~deb12u1", "-1+deb12u2", "-" + part())


def version(rng, ecosystem):
    if ecosystem == "PyPI":
        return pep440(rng, odd=rng.random() < 0.3)
    if ecosystem == "Go":
        return go_version(rng)
    if ecosystem in ("npm", "crates.io", "GitHub Actions"):
        return semver(rng)
    return debian(rng)


def spelled(rng, ecosystem, name):
    """The name as somebody may write it who means this package."""
    if rng.random() < 0.6:
        return name
    if ecosystem == "PyPI":
        name = "".join(one(rng, "-", "_", ".", "--", "-.") if c == "-" else c for c in name)
        return "".join(c.upper() if rng.random() < 0.3 else c for c in name)
    return name


# OSV records.


def written(rng, value):
    """A JSON text of the value, in one of the ways to write it."""
    def shuffled(value):
        if isinstance(value, dict):
            items = list(value.items())
            rng.shuffle(items)
            return {key: shuffled(inner) for key, inner in items}
        return [shuffled(inner) for inner in value] if isinstance(value, list) else value

    text = json.dumps(shuffled(value) if rng.random() < 0.5 else value, indent=one(rng, None, None, 1, 2),
                      ensure_ascii=rng.random() < 0.5, separators=one(rng, None, (",", ":"), (" , ", " : ")))
    if rng.random() < 0.15:
        # Any character may be an escape.
        out, quoted, skip = [], False, 0
        for i, c in enumerate(text):
            if skip:
                skip -= 1
            elif c == "\\":
                skip = 5 if text[i + 1] == "u" else 1
            elif c == '"':
                quoted = not quoted
            elif quoted and ord(c) < 128 and rng.random() < 0.05:
                c = f"\\u{ord(c):04{one(rng, 'x', 'X')}}"
            out.append(c)
        text = "".join(out)
    return (one(rng, "", "", "", "", "\ufeff") + text + one(rng, "", "\n", "\r\n")).encode()


def events_of(rng, ecosystem, near, odd):
    """Events near the versions of `near`. Odd ones come in any order, with limits and ends of both kinds, and at the same version."""
    pick = lambda: one(rng, *near) if near and rng.random() < 0.5 else version_bound(rng, ecosystem)  # noqa: E731
    end = one(rng, "fixed", "last_affected")
    events = [{"introduced": "0" if rng.random() < 0.5 else pick()}]
    if rng.random() < 0.85:
        events.append({end: pick()})
    if odd:
        for _ in range(rng.randint(0, 4)):
            kind = one(rng, "introduced", end, end, "limit" if rng.random() < 0.3 else end)
            events.append({kind: "*" if kind == "limit" and rng.random() < 0.2 else pick()})
        rng.shuffle(events)
    return events


def version_bound(rng, ecosystem):
    text = version(rng, ecosystem)
    # Go's records have no "v".
    return text.removeprefix("v") if ecosystem == "Go" and rng.random() < 0.9 else text


def record(rng, index, ecosystem, name, near, odd=False):
    own = {"PyPI": "PYSEC-2026-", "npm": "GHSA-", "crates.io": "RUSTSEC-2026-", "Go": "GO-2026-"}.get(ecosystem, "DSA-")
    semantic = ecosystem in ("npm", "crates.io", "Go")
    affected = {"package": {"ecosystem": ecosystem, "name": spelled(rng, ecosystem, name)}}
    if odd and ecosystem.startswith("Ubuntu") and rng.random() < 0.1:
        affected["package"]["ecosystem"] = ecosystem.replace("Ubuntu:", "Ubuntu:Pro:")
    ranges = []
    for _ in range(one(rng, 1, 1, 1, 2) if odd else 1):
        kind = one(rng, "SEMVER", "ECOSYSTEM") if semantic else "ECOSYSTEM"
        ranges.append({"type": kind, "events": events_of(rng, ecosystem, near, odd)})
    if odd and rng.random() < 0.1:
        ranges.append({"type": "GIT", "repo": "https://example.org/a", "events": [{"introduced": "0"}, {"fixed": "abcd"}]})
    if ranges and (not odd or rng.random() < 0.85):
        affected["ranges"] = ranges
    if rng.random() < (0.4 if odd else 0.1):
        affected["versions"] = [one(rng, *near) if near and rng.random() < 0.5 else version_bound(rng, ecosystem)
                                for _ in range(rng.randint(0, 3))]
    result = {
        "schema_version": "1.6.0",
        "id": f"{own}{index + 1}",
        "modified": "2026-01-02T03:04:05Z",
        "published": f"2026-01-{1 + index:02}T00:00:00Z",
        "summary": one(rng, "Kelp", "a \"quoted\" word", "\u00fcber", "tab\there"),
        "affected": [affected],
    }
    if odd:
        if rng.random() < 0.1:
            result["withdrawn"] = "2026-02-02T00:00:00Z"
        if rng.random() < 0.3:
            result["aliases"] = [one(rng, "CVE-2026-1", "CVE-2026-2")]
        if rng.random() < 0.3:
            other = record(rng, index, ecosystem, one(rng, *NAMES[ecosystem]), near, odd=False)["affected"][0]
            result["affected"].insert(rng.randint(0, 1), other)
        if rng.random() < 0.1:
            result["affected"].append({"package": {"ecosystem": "Maven", "name": "a:b"}, "versions": ["1"]})
        if rng.random() < 0.1:
            result["affected"].append({"ranges": [{"type": "GIT", "repo": "x", "events": [{"introduced": "0"}]}]})
        if rng.random() < 0.2:
            affected["package"]["purl"] = "pkg:generic/x"
            affected["database_specific"] = {"events": [{"introduced": "0"}], "versions": ["1"]}
        if rng.random() < 0.1:
            result["aliases"] = None
    return result


def records_about(rng, packages, odd=False):
    """Records about some of the packages, (ecosystem, name, version), and some others of their ecosystems."""
    made = []
    for _ in range(one(rng, 1, 1, 2, 3) if not odd else one(rng, 1, 2, 2, 3, 5)):
        known = [package for package in packages if package[0] in NAMES]
        if known and rng.random() < 0.85:
            ecosystem, name, _ = one(rng, *known)
        else:
            ecosystem = one(rng, *[p[0] for p in known] or ["PyPI", "npm"])
            name = one(rng, *NAMES[ecosystem])
        near = [text for other, _, text in packages if other == ecosystem and text]
        made.append(written(rng, record(rng, len(made), ecosystem, name, near, odd)))
        if odd and rng.random() < 0.1:
            # Mirrors have older copies of records.
            older = json.loads(made[-1].decode("utf-8-sig"))
            older["modified"] = "2025-01-02T03:04:05Z"
            older.pop("withdrawn", None)
            made.insert(rng.randint(0, len(made)), written(rng, older))
    # Without an advisory of its ecosystem a package would be unchecked.
    for ecosystem in NAMES:
        name = "cover-of-" + ecosystem.split(":")[0].lower().replace(".", "").replace(" ", "")
        name = {"Go": f"example.org/{name}", "GitHub Actions": f"tide/{name}"}.get(ecosystem, name)
        cover = record(rng, len(made), ecosystem, name, [])
        made.append(json.dumps(cover).encode())
    return made


def packages_of(rng, ecosystem, low=1, high=5):
    return [(ecosystem, one(rng, *NAMES[ecosystem]), version(rng, ecosystem)) for _ in range(rng.randint(low, high))]


def broken(rng, content):
    """The content with a few places broken: what tools write by accident and people by hand."""
    for _ in range(rng.randint(1, 2)):
        at = rng.randint(0, max(len(content) - 1, 0))
        lines = content.split(b"\n")
        line = rng.randint(0, len(lines) - 1)
        how = rng.randint(0, 6)
        if how == 0:
            content = content[:at] + content[at + rng.randint(1, 3):]
        elif how == 1:
            content = content[:at] + one(rng, b'"', b"'", b"#", b" ", b"\\", b"]", b"=", b",", b"@", b"%", b"/", b"\t", b"\n", b"\x00",
                                         b"\xff", b"A", b"{", b":", b"?", b"&", b"\xc3\xa9", b"\r", b"\x0c", b"\xe2\x80\xa8") + content[at:]
        elif how == 2:
            content = b"\n".join(lines[:line] + lines[line + 1:])
        elif how == 3:
            content = b"\n".join(lines[:line] + [lines[line]] + lines[line:])
        elif how == 4:
            other = rng.randint(0, len(lines) - 1)
            lines[line], lines[other] = lines[other], lines[line]
            content = b"\n".join(lines)
        elif how == 5:
            content = content[:at]
        else:
            content = content[:at] + content[at:at + 1].swapcase() + content[at + 1:]
    return content


def line_ends(rng, text):
    return text.replace("\n", "\r\n") if rng.random() < 0.1 else text


# Package URLs.


def percent(rng, text, share=0.05, keep=""):
    return "".join(f"%{ord(c):02{one(rng, 'x', 'X')}}" if c not in keep and rng.random() < share else c for c in text)


TYPES = {"PyPI": "pypi", "npm": "npm", "crates.io": "cargo", "Go": "golang", "GitHub Actions": "githubactions"}


def purl(rng, ecosystem, name, text, odd=False):
    share = 0.1 if odd else 0.0
    kind = TYPES.get(ecosystem, "deb")
    qualifiers = []
    if kind == "deb":
        space = ecosystem.split(":")[0].lower() + "/"
        qualifiers.append(("distro", {"Debian:12": one(rng, "debian-12", "debian-12.5"), "Ubuntu:22.04:LTS": "ubuntu-22.04"}[ecosystem]))
        qualifiers.append(("arch", one(rng, "amd64", "all")))
        source = name
        if rng.random() < 0.8:
            # A binary package of the source: the record is about the source.
            qualifiers.append(("upstream", source if rng.random() < 0.5 else f"{source}@{text}"))
            if rng.random() < 0.5:
                name = one(rng, "lib" + name, name)
        if text[:2] in ("1:", "2:") and "@" not in dict(qualifiers).get("upstream", "") and rng.random() < 0.4:
            qualifiers.append(("epoch", text[0]))
            text = text[2:]
        name = space + name
    elif name == "stdlib":
        name = one(rng, "std", "stdlib")
        text = text.removeprefix("v") if rng.random() < 0.7 else text
    elif kind == "npm" and name.startswith("@"):
        name = (one(rng, "@", "%40") if odd else "%40") + name[1:]
    if kind == "npm" and rng.random() < 0.3:
        name = name.lower()
    if rng.random() < 0.2:
        qualifiers.append(one(rng, ("repository_url", "https://example.org/a"), ("file_name", "a.tgz"), ("checksum", "sha1:ab,sha256:cd")))
    path, _, last = name.rpartition("/")
    last = percent(rng, last, share)
    if odd and kind != "golang" and rng.random() < 0.1:
        last = last.upper()
    result = "pkg:" + ("//" if odd and rng.random() < 0.05 else "") + (kind.upper() if odd and rng.random() < 0.1 else kind) + "/"
    result += (percent(rng, path, share, "/%@") + one(rng, "/", "/", "//" if odd else "/") if path else "") + last
    if text:
        encoded = "".join("%" + f"{ord(c):02X}" if c in "+:~ @?#/%" and (c in " @?#/%" or rng.random() < 0.5) else c for c in text)
        result += "@" + percent(rng, encoded, share, "%" + string.hexdigits)
    rng.shuffle(qualifiers)
    if odd and qualifiers and rng.random() < 0.03:
        qualifiers.append(one(rng, *qualifiers))
    if qualifiers:
        result += "?" + "&".join(f"{percent(rng, key.upper(), 0) if odd and rng.random() < 0.1 else key}=" +
                                 "".join("%" + f"{ord(c):02X}" if c in " &=?#%+" or (c in "@/:" and rng.random() < 0.5) else c for c in value)
                                 for key, value in qualifiers)
    if rng.random() < 0.1:
        result += "#" + one(rng, "sub/path", "v5", "a%20b", "/x/y/" if rng.random() < 0.9 else "x/../y")
    return result


SBOM_ECOSYSTEMS = list(NAMES)


def mixed(rng, low=1, high=5):
    return [package for _ in range(rng.randint(low, high)) for package in packages_of(rng, one(rng, *SBOM_ECOSYSTEMS), 1, 1)]


def strange(rng, text):
    """A package URL with something that is not of one, or hardly."""
    at = rng.randint(4, len(text))
    return one(rng, text[:at] + one(rng, "@", "/", "?", "#", "%", "%2", "%zz", " ", "&", "=", "+", "//", ":", "\u00e9", "%00") + text[at:],
               text.replace("pkg:", one(rng, "PKG:", "pkg", "pkg:/", "")), text.replace("@", "", 1), text[:at])


def name_in(url):
    """The name in a package URL, as a component has it beside that."""
    path = url.partition("#")[0].partition("?")[0]
    at = path.rfind("@")
    return urllib.parse.unquote((path[:at] if at > path.rfind("/") else path).rpartition("/")[2])


def found_by(rng):
    """Where syft says that it found a package."""
    return [{"name": "syft:package:foundBy", "value": one(rng, "dpkg-db-cataloger", "go-module-binary-cataloger", "sbom-cataloger")}]


def document(rng, urls):
    """A plain CycloneDX document of components with these package URLs."""
    components = [{"type": "library", "name": name_in(url), "bom-ref": f"c{i}", "purl": url, "properties": found_by(rng)}
                  for i, url in enumerate(urls)]
    tool = one(rng, "syft", "syft", "reef")
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"tools": [{"name": tool, "version": "1.0.0"}]},
                       "components": components}).encode()


def purl_case(rng):
    packages = mixed(rng, 1, 1)
    url = purl(rng, *packages[0], odd=True)
    if rng.random() < 0.15:
        url = strange(rng, url)
    return "bom.json", document(rng, [url]), records_about(rng, packages)


def osv_case(rng):
    ecosystem = one(rng, *NAMES)
    packages = packages_of(rng, ecosystem, 2, 8)
    return "bom.json", document(rng, [purl(rng, *package) for package in packages]), records_about(rng, packages, odd=True)


# Bills of materials.


def cpe(rng, text):
    """A name in the Common Platform Enumeration, of this version, of any or of another one."""
    escaped = "".join(c if c.isalnum() or c in "._" else "\\" + c for c in text)
    return f"cpe:2.3:a:b:c:{one(rng, escaped, escaped, '*', '-', '0.0.0.0.9')}:*:*:*:*:*:*:*"


def component(rng, package, depth=0):
    kind = one(rng, "library", "library", "library", "application", "framework", "file", "operating-system", "container", "device", "firmware")
    value = {"type": kind, "name": package[1].rpartition("/")[2], "bom-ref": f"r{rng.getrandbits(40)}"}
    if package[2] and rng.random() < 0.9:
        value["version"] = package[2]
    if kind in ("library", "application", "framework") and rng.random() < 0.95 or rng.random() < 0.3:
        value["purl"] = purl(rng, *package)
        value["name"] = name_in(value["purl"])
        if rng.random() < 0.1:
            # What stands beside a package URL may have more of its path, and may be of another package.
            value["group"] = package[1].rpartition("/")[0]
        if rng.random() < 0.05:
            value[one(rng, "name", "group")] = one(rng, *NAMES[package[0]])
        if rng.random() < 0.05:
            value["version"] = version(rng, package[0])
    if rng.random() < 0.2:
        value["description"] = one(rng, "purl: pkg:npm/lodash@0.0.1", "\"purl\":\"pkg:npm/a@1\"", "\u2028 x")
    if rng.random() < 0.1:
        value["properties"] = [{"name": "purl", "value": "pkg:npm/lodash@0.0.1"}]
    elif rng.random() < 0.6:
        value["properties"] = found_by(rng)
    if "purl" in value and rng.random() < 0.1:
        value["bom-ref"] = f"{value['purl'].partition('?')[0].partition('#')[0]}?package-id={rng.getrandbits(40)}"
    if value.get("version") and rng.random() < 0.1:
        value["cpe"] = cpe(rng, value["version"])
    if rng.random() < 0.05:
        value["pedigree"] = {"ancestors": [{"type": "library", "name": "lodash", "purl": "pkg:npm/lodash@0.0.1"}]}
    if rng.random() < 0.1:
        value["scope"] = one(rng, "required", "optional", "excluded")
    if depth < 3 and rng.random() < 0.25:
        value["components"] = [component(rng, inner, depth + 1) for inner in mixed(rng, 1, 2)]
    return value


def cyclonedx_case(rng):
    packages = mixed(rng, 0, 5)
    value = {"bomFormat": "CycloneDX", "specVersion": one(rng, "1.2", "1.3", "1.4", "1.5", "1.6"), "version": 1}
    if packages or rng.random() < 0.5:
        value["components"] = [component(rng, package) for package in packages]
    if rng.random() < 0.6:
        value["metadata"] = {"timestamp": "2026-01-01T00:00:00Z"}
        if rng.random() < 0.6:
            main = mixed(rng, 1, 1)[0]
            value["metadata"]["component"] = component(rng, main)
            if rng.random() < 0.5:
                value["metadata"]["component"].pop("purl", None)
        if rng.random() < 0.5:
            value["metadata"]["tools"] = [{"vendor": "a", "name": one(rng, "syft", "cdxgen"), "version": "1.0.0"}]
    if rng.random() < 0.2:
        value["services"] = [{"name": "lodash", "bom-ref": "s", "endpoints": ["https://example.org"]}]
    every = []

    def visit(items):
        for item in items:
            every.append(item)
            visit(item.get("components", []))

    visit(value.get("components", []) + [value.get("metadata", {}).get("component", {})])
    refs = [item["bom-ref"] for item in every if "bom-ref" in item]
    if rng.random() < 0.3:
        # Some depend on what is not in the bill.
        value["dependencies"] = [{"ref": ref, "dependsOn": [one(rng, *refs) if rng.random() < 0.95 else "pkg:npm/lodash@0.0.1"
                                                            for _ in range(rng.randint(0, 2))]} for ref in sorted(set(refs))]
    about = list(packages)
    for _ in range(2):
        about += mixed(rng, 1, 1)
    return one(rng, "bom.json", "a.cdx.json", "sbom"), written(rng, value), records_about(rng, about)


# Where syft says that it found a package; the last ones are bills of materials.
FINDERS = ["acquired package info from DPKG DB: ", "acquired package info from go module information: "]
PLACES = ["/var/lib/dpkg/status", "/var/lib/dpkg/status.d/a, /var/lib/dpkg/info/a.md5sums", "/opt/a.spdx.json", "/a, /usr/share/sbom/image.cdx"]


def spdx_packages(rng):
    """What an SPDX document says, in either notation: packages with references, and which it describes."""
    packages = mixed(rng, 0, 5)
    values = []
    for i, package in enumerate(packages):
        references = []
        for _ in range(one(rng, 0, 1, 1, 1, 1, 1, 1, 2)):
            about = package if rng.random() < 0.8 else mixed(rng, 1, 1)[0]
            references.append((one(rng, "PACKAGE-MANAGER", "PACKAGE-MANAGER", "OTHER"), "purl", purl(rng, *about)))
        if rng.random() < 0.2:
            references.insert(rng.randint(0, len(references)), ("SECURITY", "cpe23Type", cpe(rng, package[2] or "1")))
        if rng.random() < 0.05:
            references.append(("PACKAGE-MANAGER", one(rng, "npm", "maven-central"), "lodash@1.0.0"))
        urls = [locator for _, kind, locator in references if kind == "purl"]
        name = name_in(urls[0]) if urls and rng.random() < 0.8 else package[1]
        values.append({"id": f"SPDXRef-{i}", "name": name, "version": package[2], "references": references,
                       "comment": one(rng, None, None, "a", "ExternalRef: PACKAGE-MANAGER purl pkg:npm/lodash@0.0.1",
                                      "x\nExternalRef: PACKAGE-MANAGER purl pkg:npm/lodash@0.0.1\ny\nPackageName: z")})
    described = [value["id"] for value in values if rng.random() < 0.2][:2]
    return packages, values, described


def spdx_json_case(rng):
    packages, values, described = spdx_packages(rng)
    value = {
        "spdxVersion": one(rng, "SPDX-2.3", "SPDX-2.3", "SPDX-2.2"),
        "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "reef", "documentNamespace": "https://example.org/reef",
        "creationInfo": {"created": "2026-01-01T00:00:00Z", "creators": [one(rng, "Tool: syft-1.0.0", "Tool: reef")]},
        "packages": [],
    }
    for item in values:
        package = {"SPDXID": item["id"], "name": item["name"], "downloadLocation": "NOASSERTION", "filesAnalyzed": False}
        if rng.random() < 0.9:
            package["versionInfo"] = item["version"]
        if rng.random() < 0.5:
            package["sourceInfo"] = one(rng, *FINDERS) + one(rng, *PLACES)
        if item["references"] or rng.random() < 0.5:
            package["externalRefs"] = [
                {"referenceCategory": category if rng.random() < 0.7 else category.replace("-", "_"),
                 "referenceType": kind if kind != "purl" or rng.random() < 0.95 else "http://spdx.org/rdf/references/purl",
                 "referenceLocator": locator} for category, kind, locator in item["references"]]
        if item["comment"]:
            package["comment"] = item["comment"]
        value["packages"].append(package)
    relations = []
    for name in described:
        if rng.random() < 0.4:
            value.setdefault("documentDescribes", []).append(name)
        elif rng.random() < 0.8:
            relations.append({"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": name})
        else:
            relations.append({"spdxElementId": name, "relationshipType": "DESCRIBED_BY", "relatedSpdxElement": "SPDXRef-DOCUMENT"})
    for item in values[1:]:
        if rng.random() < 0.3:
            relations.append({"spdxElementId": values[0]["id"], "relationshipType": one(rng, "CONTAINS", "DEPENDS_ON"),
                              "relatedSpdxElement": item["id"] if rng.random() < 0.95 else "SPDXRef-npm-lodash"})
    if relations or rng.random() < 0.2:
        value["relationships"] = relations
    if rng.random() < 0.2:
        value["files"] = [{"SPDXID": "SPDXRef-f", "fileName": "./a", "checksums": [{"algorithm": "SHA1", "checksumValue": "a" * 40}]}]
    return one(rng, "a.spdx.json", "sbom.json"), written(rng, value), records_about(rng, packages + mixed(rng, 1, 2))


def spdx_tag_case(rng):
    packages, values, described = spdx_packages(rng)
    gap = lambda: one(rng, " ", " ", " ", "", "  ")  # noqa: E731
    lines = [f"SPDXVersion:{gap()}{one(rng, 'SPDX-2.3', 'SPDX-2.2')}", f"DataLicense:{gap()}CC0-1.0", f"SPDXID:{gap()}SPDXRef-DOCUMENT",
             f"DocumentName:{gap()}reef", "DocumentNamespace: https://example.org/reef",
             f"Creator: Tool: {one(rng, 'syft-1.0.0', 'reef')}", "Created: 2026-01-01T00:00:00Z"]
    if rng.random() < 0.2:
        lines.append("DocumentComment: <text>one\nPackageName: none\nExternalRef: PACKAGE-MANAGER purl pkg:npm/lodash@0.0.1</text>")
    for item in values:
        lines += one(rng, [""], ["", "# a package", ""], [])
        lines.append(f"PackageName:{gap()}{item['name']}")
        fields = [[f"SPDXID:{gap()}{item['id']}"], [f"PackageVersion:{gap()}{item['version']}"],
                  ["PackageDownloadLocation: NOASSERTION"], ["FilesAnalyzed: false"]]
        if rng.random() < 0.5:
            fields.append(["PackageSourceInfo: " + one(rng, *FINDERS) + one(rng, *PLACES)])
        for category, kind, locator in item["references"]:
            fields.append([f"ExternalRef:{gap()}{category} {kind} {locator}"])
            if rng.random() < 0.1:
                fields[-1].append("ExternalRefComment: <text>a\nPackageName: b</text>")
        if item["comment"]:
            fields.append([f"PackageComment:{gap()}<text>{item['comment']}</text>"])
        if rng.random() < 0.5:
            rng.shuffle(fields)
        lines += [line for field in fields for line in field]
        if rng.random() < 0.1:
            lines += ["", "FileName: ./a", "SPDXID: SPDXRef-f" + item["id"][-1], "FileChecksum: SHA1: " + "a" * 40]
    for name in described:
        lines.append(f"Relationship:{gap()}" + one(rng, f"SPDXRef-DOCUMENT DESCRIBES {name}", f"SPDXRef-DOCUMENT DESCRIBES {name}",
                                                   f"{name} DESCRIBED_BY SPDXRef-DOCUMENT"))
    text = "\n".join(lines) + one(rng, "\n", "\n\n")
    return one(rng, "a.spdx", "sbom.txt"), line_ends(rng, text).encode(), records_about(rng, packages + mixed(rng, 1, 2))


# Lock files.


def requirements_case(rng):
    packages = packages_of(rng, "PyPI", 1, 6)
    lines = []
    blank = lambda: one(rng, "", "", "", " ", "\t")  # noqa: E731
    for _, name, text in packages:
        written_name = spelled(rng, "PyPI", name)
        extras = one(rng, "", "", "", "", "[x]", "[x,y]", " [x]", "[ x , y ]", "[]")
        sign = one(rng, "==", "==", "==", "==", "==", "==", "===", ">=", "<=")
        # Only == and === take a local label, and only plain releases a star.
        if sign in (">=", "<="):
            text = text.partition("+")[0]
        star = ".*" if sign == "==" and text.replace(".", "").isdigit() and rng.random() < 0.15 else ""
        pin = blank() + sign + blank() + text + star + one(rng, "", "", "", "", "", "", ",>=0", " , !=9.9", ",<99,>0")
        if rng.random() < 0.07:
            pin = one(rng, "", f" @ https://example.org/{name}-{text}.tar.gz", f"@git+https://example.org/a@{text}", ">=1,<2")
        if rng.random() < 0.04:
            pin = f" ({pin.strip()})"
        line = written_name + extras + pin
        line += one(rng, "", "", "", "", "; python_version < '4'", ' ; sys_platform == "win32"', "; extra == 'x'")
        line += one(rng, "", "", "", "", " --hash=sha256:" + "a" * 64, " \\\n    --hash=sha256:" + "b" * 64 + " \\\n    --hash=sha256:" + "c" * 64)
        line += one(rng, "", "", "", "", "", "  # via reef", " # x==1 \\", "\t# y") + ("#z" if rng.random() < 0.01 else "")
        lines.append(blank() + line)
        if rng.random() < 0.2:
            lines.append(one(rng, "", "# reef==1.0", "   # a", "--index-url https://example.org/simple", "-i https://example.org", "--pre",
                             "--extra-index-url=https://example.org", "-r other.txt", "-c constraints.txt", "--requirement=other.txt",
                             "-e .", "-e git+https://example.org/a#egg=a", "./local", "https://example.org/a-1.0.whl", "barge-1.0-py3-none-any.whl",
                             "--no-binary :all:", "--find-links ./x", "--trusted-host example.org", "-f https://example.org",
                             "--only-binary=:none:", "--prefer-binary", "file:///tmp/a-1.0.tar.gz", "-rother.txt", "-e.", "--require-hashes", ".."))
        if rng.random() < 0.02:
            # What pip refuses, and with it the whole file.
            lines.append(one(rng, "barge \\", "--hash=sha256:aa", "kelp2 == 1.0 ; ", "a==1 b==2", "barge=1.0", "barge==", "barge 1.0", "C:\\x", "$X",
                             "barge==${VERSION}"))
    text = one(rng, "", "", "", "", "\ufeff", "# -*- coding: utf-8 -*-\n") + "\n".join(lines) + one(rng, "\n", "", "\n\n")
    return one(rng, "requirements.txt", "requirements-dev.txt"), line_ends(rng, text).encode(), records_about(rng, packages)


def metadata_case(rng):
    package = packages_of(rng, "PyPI", 1, 1)[0]
    fields = [f"Name: {spelled(rng, 'PyPI', package[1])}", f"Version: {package[2]}"]
    for field in ("Summary: a name", "Author: x", "Description: Name: other\n        Version: 1", "Requires-Dist: barge==1.0",
                  "Classifier: Name: x", "License: MIT\n Version: 9", "name-x: 1", "Obsoletes-Dist: a", "Home-page: UNKNOWN"):
        if rng.random() < 0.25:
            fields.append(field)
    if rng.random() < 0.5:
        rng.shuffle(fields)
    for i, field in enumerate(fields):
        if rng.random() < 0.1:
            name, _, rest = field.partition(": ")
            fields[i] = one(rng, name.lower() + ": " + rest, name + ":" + rest, name + ":  " + rest + " ", name + ": \n " + rest, name.upper() + ": " + rest)
    if rng.random() < 0.05:
        fields.append(one(rng, "Name: second", "Version: 0.0.1", "Version:", "Name: "))
    text = "\n".join(["Metadata-Version: " + one(rng, "1.0", "2.1", "2.4")] + fields) + "\n"
    if rng.random() < 0.5:
        text += "\n" + one(rng, "Name: body\nVersion: 9\n", "text\n\nVersion: 2\n")
    return one(rng, "METADATA", "PKG-INFO"), line_ends(rng, text).encode(), records_about(rng, [package])


class Toml:
    """Writes TOML in the ways that it allows."""

    def __init__(self, rng, odd):
        self.rng, self.odd = rng, odd

    def key(self, name):
        if self.rng.random() > self.odd:
            return name if all(c.isalnum() or c in "-_" for c in name) else json.dumps(name)
        if self.rng.random() < 0.3:
            return "'" + name + "'"
        return '"' + "".join(f"\\u{ord(c):04x}" if self.rng.random() < 0.3 else c for c in name) + '"'

    def text(self, value):
        how = self.rng.random() if self.rng.random() < self.odd else 1
        if how < 0.3 and "'" not in value and "\n" not in value:
            return "'" + value + "'"
        if how < 0.5 and value:
            at = self.rng.randrange(len(value))
            form = one(self.rng, "\\u{:04x}", "\\U{:08X}")
            return json.dumps(value[:at])[:-1] + form.format(ord(value[at])) + json.dumps(value[at + 1:])[1:]
        if how < 0.7:
            return '"""' + one(self.rng, "", "\n", "\\\n   ") + json.dumps(value)[1:-1] + '"""'
        if how < 0.8 and "'" not in value:
            return "'''" + value + "'''"
        return json.dumps(value)

    def value(self, value):
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return str(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            if not value:
                return one(self.rng, "[]", "[ ]", "[\n]")
            items = [self.value(item) for item in value]
            form = one(self.rng, ("[\n    ", ",\n    ", ",\n]"), ("[", ", ", "]"), ("[ # a ]\n", ", # b\n ", "\n # ]\n]"))
            return form[0] + form[1].join(items) + form[2]
        inner = ", ".join(f"{self.key(name)}{one(self.rng, ' = ', '=')}{self.value(item)}" for name, item in value.items())
        return "{" + (f" {inner} " if inner else "") + "}"

    def pairs(self, table):
        """Lines for the members, inner tables as dotted keys or inline."""
        lines = []
        for name, value in table.items():
            if isinstance(value, dict) and value and self.rng.random() < 0.5:
                for inner, item in value.items():
                    lines.append(f"{self.key(name)}{one(self.rng, '.', ' . ', '.')}{self.key(inner)} = {self.value(item)}")
            else:
                lines.append(f"{self.key(name)}{one(self.rng, ' = ', ' = ', '=', '  =  ')}{self.value(value)}{one(self.rng, '', '', '', '  # x', ' ')}")
        return lines

    def header(self, way, marks="[]"):
        names = [self.key(name) for name in way]
        gap = one(self.rng, "", " ") if self.rng.random() < self.odd else ""
        return marks[0] + gap + (gap + "." + gap).join(names) + gap + marks[1] + one(self.rng, "", "", "", " # y")

    def packages(self, packages):
        """`package` as an array of tables, in headers or inline."""
        if self.rng.random() < self.odd * 0.3:
            return [f"{self.key('package')} = {self.value(packages)}"], []
        after = []
        for package in packages:
            own = {name: value for name, value in package.items() if not isinstance(value, dict) or self.rng.random() < self.odd * 0.5}
            if self.rng.random() < self.odd:
                items = list(own.items())
                self.rng.shuffle(items)
                own = dict(items)
            header = self.header(["package"], ("[[", "]]"))
            after += ["", one(self.rng, "", "", "  ") + header] + self.pairs(own)
            for name, value in package.items():
                if name not in own:
                    after += ["", self.header(["package", name])] + self.pairs(value)
        return [], after


def needed(rng, packages):
    """The name of a package of a lock file, or hardly ever of one that it lacks."""
    return one(rng, *(package[1] for package in packages)) if packages and rng.random() < 0.97 else "lacking"


def poetry_case(rng):
    packages = packages_of(rng, "PyPI", 0, 5)
    toml = Toml(rng, one(rng, 0, 0, 0.3, 0.6))
    values = []
    for _, name, text in packages:
        value = {"name": spelled(rng, "PyPI", name), "version": text, "description": one(rng, "", "a [[package]]", "name = \"x\"", "a\nb # c"),
                 "optional": False, "python-versions": ">=3.8",
                 "files": [{"file": one(rng, "a.whl", f"{name.replace('-', '_')}-{text.replace('-', '_')}-py3-none-any.whl", f"{name}-{text}.tar.gz"),
                            "hash": "sha256:ab"}]}
        if rng.random() < 0.02:
            value["files"][0]["file"] = f"{one(rng, *NAMES['PyPI'])}-{pep440(rng, odd=False)}-py3-none-any.whl"
        if rng.random() < 0.2:
            value["dependencies"] = {needed(rng, packages): one(rng, "*", ">=1"), "tide-glass": {"version": ">=1", "optional": True}}
        if rng.random() < 0.2:
            value["extras"] = {"all": ["barge (>=1)"], "x": ["a"]}
        if rng.random() < 0.2:
            kind = one(rng, "directory", "git", "url", "file", "legacy")
            value["source"] = {"type": kind, "url": one(rng, "../a", ".") if kind in ("directory", "file") else "https://example.org/a"}
            if kind == "git":
                value["source"].update(reference="main", resolved_reference="a" * 40)
        values.append(value)
    before, after = toml.packages(values)
    metadata = {"lock-version": one(rng, "2.0", "2.1", "1.1"), "python-versions": "^3.8", "content-hash": "ab"}
    lines = [one(rng, "# This file is automatically @generated by Poetry 1.8.2", "# a")] + before + after
    if not values:
        lines.append("package = []")
    if rng.random() < 0.2:
        lines += ["", toml.header(["extras"])] + toml.pairs({"package": ["barge"]})
    lines += ["", toml.header(["metadata"])] + toml.pairs(metadata)
    return "poetry.lock", line_ends(rng, "\n".join(lines) + "\n").encode(), records_about(rng, packages)


REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def cargo_case(rng):
    packages = packages_of(rng, "crates.io", 0, 5)
    toml = Toml(rng, one(rng, 0, 0, 0.3, 0.6))
    form = one(rng, 1, 2, 3, 4)
    values = []
    for i, (_, name, text) in enumerate(packages):
        value = {"name": name, "version": text}
        if rng.random() < 0.9:
            value["source"] = one(rng, REGISTRY, REGISTRY, REGISTRY, "sparse+https://index.crates.io/",
                                  "git+https://example.org/a?rev=1#" + "a" * 40, "registry+https://example.org/index")
            if form > 1 and value["source"].startswith(("registry", "sparse")):
                value["checksum"] = "ab" * 32
        if rng.random() < 0.3:
            other = one(rng, *packages)
            value["dependencies"] = [one(rng, needed(rng, packages), f"{other[1]} {other[2]}")]
        values.append(value)
    values.insert(rng.randint(0, len(values)), {"name": "project", "version": "0.1.0"})
    before, after = toml.packages(values)
    lines = ["# This file is automatically @generated by Cargo."] + ([f"version = {form}"] if form > 2 else []) + before
    if form == 1 and rng.random() < 0.5:
        lines += ["", toml.header(["root"])] + toml.pairs({"name": "project", "version": "0.2.0", "dependencies": [needed(rng, [("", "project", "")])]})
    lines += after
    if form == 1 and packages:
        lines += ["", toml.header(["metadata"])]
        lines += sorted({f'"checksum {value["name"]} {value["version"]} ({value["source"]})" = "{"ab" * 32}"' for value in values if "source" in value})
    return "Cargo.lock", line_ends(rng, "\n".join(lines) + "\n").encode(), records_about(rng, packages)


def npm_source(rng, name, text):
    return f"https://registry.npmjs.org/{name}/-/{name.rpartition('/')[2]}-{text}.tgz"


def legacy(rng, places):
    """`dependencies` of version 2, which say the same as `packages`, now and then not quite."""
    result = {}
    for place, entry in places.items():
        ways = place.split("node_modules/")
        if ways[0] or len(ways) < 2:
            continue
        under = result
        for way in ways[1:-1]:
            # A package below another one comes after it.
            under = under.setdefault(way.rstrip("/"), {}).setdefault("dependencies", {})
        name = ways[-1]
        written = under.setdefault(name, {})
        if entry.get("link"):
            written["version"] = "file:" + entry["resolved"]
        elif "name" in entry and entry["name"] != name:
            written["version"] = f"npm:{entry['name']}@{entry['version']}"
        else:
            written["version"] = entry.get("version", str(entry.get("resolved")))
        if rng.random() < 0.02:
            written["version"] = semver(rng)
    if result and rng.random() < 0.05:
        result[one(rng, *NAMES["npm"])] = {"version": semver(rng)}
    return result


def package_lock_case(rng):
    packages = packages_of(rng, "npm", 0, 6)
    form = one(rng, 1, 2, 3, 3)
    value = {"name": "project", "version": "1.0.0", "lockfileVersion": form, "requires": True}
    if form == 3 and rng.random() < 0.05:
        del value["name"]
    if form > 1:
        places = {"": {"name": "project", "version": "1.0.0", "dependencies": {}}}
        for _, name, text in packages:
            path = "node_modules/" + name
            if rng.random() < 0.4 and len(places) > 1:
                under = [place for place in places if place.startswith("node_modules/") and not places[place].get("link")]
                path = one(rng, *under or [""]) + "/" + path if under else path
            if path in places:
                continue
            entry = {"version": text, "resolved": npm_source(rng, name, text), "integrity": "sha512-" + "a" * 86 + "=="}
            how = rng.random()
            if how < 0.1:
                entry["name"] = one(rng, *NAMES["npm"])
                entry["resolved"] = npm_source(rng, entry["name"], text)
            elif how < 0.15:
                entry.pop("version")
                entry["resolved"] = "git+ssh://git@example.org/a.git#" + "a" * 40
            elif how < 0.2:
                entry = {"resolved": "packages/" + name.replace("@", "").replace("/", "-"), "link": True}
                places[entry["resolved"]] = {"name": name, "version": text}
            elif how < 0.25:
                entry["resolved"] = one(rng, "file:a.tgz", "https://example.org/a.tgz", True)
            elif how < 0.27:
                entry["resolved"] = npm_source(rng, one(rng, *NAMES["npm"]), one(rng, text, semver(rng)))
            if rng.random() < 0.3:
                entry[one(rng, "dev", "optional", "peer", "inBundle", "devOptional")] = True
            # What lies in the first node_modules all can use.
            if rng.random() < 0.2 and places[""]["dependencies"]:
                entry["dependencies"] = {needed(rng, [("", one(rng, *places[""]["dependencies"]), "")]): "^1.0.0"}
            places[path] = entry
            if path == "node_modules/" + name:
                places[""]["dependencies"][name] = "*"
        value["packages"] = places
    if form < 3:
        def tree(packages, depth=0, first=packages):
            result = {}
            for _, name, text in packages:
                entry = {"version": text, "resolved": npm_source(rng, name, text), "integrity": "sha512-aa=="}
                how = rng.random()
                if how < 0.1:
                    real = one(rng, *NAMES["npm"])
                    entry.update(version=f"npm:{real}@{text}", resolved=npm_source(rng, real, text))
                elif how < 0.15:
                    entry = {"version": one(rng, "git+ssh://git@example.org/a.git#" + "a" * 40, "github:a/b#abc", "https://example.org/a.tgz",
                                            "file:../a", "file:a.tgz")}
                if rng.random() < 0.3:
                    entry[one(rng, "dev", "optional", "bundled")] = True
                if depth < 2 and rng.random() < 0.3:
                    entry["dependencies"] = tree(packages_of(rng, "npm", 1, 2), depth + 1)
                if rng.random() < 0.2:
                    entry["requires"] = {needed(rng, first): "^1.0.0"}
                result[name] = entry
            return result

        # Version 2 says the same twice; who reads `packages` does not read this.
        value["dependencies"] = tree(packages) if form == 1 else legacy(rng, value["packages"])
    return one(rng, "package-lock.json", "npm-shrinkwrap.json"), written(rng, value), records_about(rng, packages)


def go_sum_case(rng):
    packages = [package for package in packages_of(rng, "Go", 1, 6) if package[1] != "stdlib"]
    lines = []
    for _, name, text in packages:
        digest = "h1:" + "a" * 43 + "="
        both = rng.random()
        if both < 0.8:
            lines.append(f"{name} {text} {digest}")
        if both > 0.2:
            lines.append(f"{name} {text}/go.mod {digest}")
    if rng.random() < 0.5:
        rng.shuffle(lines)
    if rng.random() < 0.2:
        lines = [one(rng, line, line.replace(" ", "  "), " " + line, line.replace(" ", "\t"), line + " ") for line in lines]
    if rng.random() < 0.1:
        lines.insert(rng.randint(0, len(lines)), "")
    return "go.sum", line_ends(rng, "\n".join(lines) + one(rng, "\n", "\n", "\n\n")).encode(), records_about(rng, packages)


def dpkg_case(rng):
    packages = packages_of(rng, "Debian:12", 1, 5)
    stanzas = []
    # Two packages of one name are in the file only with different architectures.
    packages = list({package[1]: package for package in packages}.values())
    for i, (_, source, text) in enumerate(packages):
        status = one(rng, "install ok installed", "install ok installed", "install ok installed", "hold ok installed", "install ok unpacked",
                     "deinstall ok config-files", "install ok half-configured", "install reinstreq half-installed", "purge ok not-installed",
                     "install ok triggers-pending", "install ok triggers-awaited", "deinstall ok installed")
        fields = [f"Status: {status}", f"Version: {text}", f"Architecture: {one(rng, 'amd64', 'all')}", "Maintainer: A <a@example.org>",
                  "Description: a\n Package: b\n .\n Version: 1\n"[:-1]]
        name = source
        if rng.random() < 0.5:
            name = f"lib{source}{i}".lower()
            fields.append(f"Source: {source}" + (f" ({debian(rng)})" if rng.random() < 0.4 else ""))
        elif source == "linux" and rng.random() < 0.7:
            name = f"linux-image-{i}-amd64"
            upstream, hyphen, revision = text.rpartition("-")
            fields.append(f"Source: linux-signed-amd64 ({upstream}+{revision})" if hyphen else f"Source: linux-signed-amd64 ({text}+1)")
        if status.endswith("triggers-awaited"):
            fields.append("Triggers-Awaited: linux")
        if status.endswith("triggers-pending"):
            fields.append("Triggers-Pending: /usr/lib")
        if rng.random() < 0.2:
            fields.append("Conffiles:\n /etc/a aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
        if rng.random() < 0.3:
            rng.shuffle(fields)
        if rng.random() < 0.1:
            fields = [one(rng, field, field.split(":")[0].lower() + ":" + field.partition(":")[2], field.replace(": ", ":\t", 1),
                          field.replace(": ", ":", 1)) if "\n" not in field else field for field in fields]
        stanzas.append("\n".join([f"Package: {name}"] + fields) + "\n")
    return "status", (one(rng, "\n", "\n", "\n\n").join(stanzas) + one(rng, "\n", "")).encode(), records_about(rng, packages)


MAKERS = {"purl": purl_case, "osv": osv_case, "cyclonedx": cyclonedx_case, "spdx-json": spdx_json_case, "spdx-tag-value": spdx_tag_case,
          "requirements": requirements_case, "metadata": metadata_case, "poetry-lock": poetry_case, "package-lock": package_lock_case,
          "cargo-lock": cargo_case, "go-sum": go_sum_case, "dpkg-status": dpkg_case}


def case(seed, format_name, index):
    rng = random.Random(f"{seed}/{format_name}/{index}")
    name, content, records = MAKERS[format_name](rng)
    max_bytes = 60000
    if format_name not in ("purl", "osv") and rng.random() < BROKEN:
        content = broken(rng, content)
    elif format_name == "osv":
        # Not everything fits into small rows: what is said about a version must stay right.
        max_bytes = one(rng, 60000, 60000, 60000, 300, 120)
        if rng.random() < BROKEN:
            at = rng.randrange(len(records) - len(NAMES))
            records[at] = broken(rng, records[at])
    return Case(format_name, name, content, records, max_bytes=max_bytes)


# Pairs of versions.

PAIRS = {"order-pypi": pep440, "order-npm": semver, "order-cargo": semver, "order-go": go_version, "order-debian": debian}
ORDERS = tuple(PAIRS)


def pair(seed, order, index):
    rng = random.Random(f"{seed}/{order}/{index}")
    make = PAIRS[order]
    a = make(rng)
    # Independent ones differ in the first number already.
    near = "".join(one(rng, c, c, c, c, c, one(rng, *"019ab.-~+"), "") for c in a)
    b = near if rng.random() < 0.5 and near else make(rng)
    return a, b

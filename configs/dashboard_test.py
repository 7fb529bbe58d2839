"""dashboard_test.py DASHBOARD FRONTEND-PORT DOOR-PORT MONITORING-PORT..: whether the dashboard is one that Grafana's own library
takes, and whether what it asks for is what parties show, all of it and nothing else."""
import json
import re
import socket
import ssl
import struct
import sys
import time
import urllib.error
import urllib.request

import promql_parser
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

path, frontend, door, *ports = sys.argv[1], *(int(port) for port in sys.argv[2:])


def kept(before, after, where):
    """All that was there is there, as it was: the library drops fields that Grafana does not know."""
    if isinstance(before, dict):
        assert isinstance(after, dict), where
        for key in before:
            assert key in after, f"{where}/{key} is no field of Grafana's"
            kept(before[key], after[key], f"{where}/{key}")
    elif isinstance(before, list):
        assert isinstance(after, list) and len(before) == len(after), where
        for i, (one, other) in enumerate(zip(before, after)):
            kept(one, other, f"{where}[{i}]")
    else:
        assert before == after, f"{where}: {before!r} is {after!r} to Grafana"


def check_form(dashboard):
    register_default_plugins()
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(dashboard)))
    kept(dashboard, again, "")
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids), "an id comes twice"
    taken = set()
    for panel in dashboard["panels"]:
        assert panel["title"], "a panel without a title"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, f"{panel['title']}: beyond the right edge"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']}: on top of another panel"
                taken.add((x, y))


def selectors(expression):
    """Every selector in a parsed expression."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector", "args"):
        inner = getattr(expression, name, None)
        if name == "vector_selector" and isinstance(inner, promql_parser.VectorSelector):
            yield inner
        elif isinstance(inner, list):
            for argument in inner:
                yield from selectors(argument)
        elif inner is not None and not isinstance(inner, (str, promql_parser.VectorSelector)):
            yield from selectors(inner)
        elif isinstance(inner, promql_parser.VectorSelector):
            yield inner


def check_expression(expression, series):
    """Returns the names that it asks for. Each selector has to find something."""
    text = expression.replace("$__rate_interval", "5m").replace("$party", ".*")
    assert "$" not in text, f"{expression}: an unknown variable"
    names = set()
    for selector in selectors(promql_parser.parse(text)):
        names.add(selector.name)
        found = [labels for name, labels in series if name == selector.name]
        assert found, f"{expression}: no party shows {selector.name}"
        for matcher in selector.matchers.matchers:
            assert str(matcher.op) in ("MatchOp.Equal", "MatchOp.Re"), f"{expression}: {matcher.op}"
            pattern = matcher.value if str(matcher.op) == "MatchOp.Re" else re.escape(matcher.value)
            assert any(
                matcher.name in labels and re.fullmatch(pattern, labels[matcher.name]) for labels in found
            ), f"{expression}: no {selector.name} has {matcher.name} {matcher.value}"
    assert names, f"{expression}: asks for nothing"
    return names


def check_legend(target, names, series):
    """Labels that a legend names are labels of what is asked for."""
    for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        assert any(name in names and label in labels for name, labels in series), f"{target}: no label {label}"


def shown(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        text = page.read().decode()
    families = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    series = [
        (name, dict(re.findall(r'(\w+)="([^"]*)"', labels)))
        for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE)
    ]
    return families, series


def be_refused():
    """Sends the frontend a request that does not parse."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(("127.0.0.1", frontend), timeout=20)) as connection:
        connection.sendall(struct.pack("<4sHHIQ", b"SHL3", 19, 0, 1, 0) + b"\xff")
        assert struct.unpack("<4sHHIQ", connection.recv(20))[1] == 1, "was not refused"


def be_refused_by_the_door():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        urllib.request.urlopen(f"https://127.0.0.1:{door}/v1/call", data=b"no frame", context=context, timeout=20)
    except urllib.error.HTTPError as error:
        assert error.code == 400, error
    else:
        raise AssertionError("was not refused")


def main():
    with open(path, encoding="utf-8") as file:
        dashboard = json.load(file)
    check_form(dashboard)
    be_refused()
    be_refused_by_the_door()
    # The refresh takes a moment.
    until = time.monotonic() + 120
    while True:
        pages = [shown(port) for port in ports]
        families = set().union(*(page[0] for page in pages))
        series = [one for page in pages for one in page[1]]
        if any(name == "shoal_refreshes_total" and labels["result"] == "done" for name, labels in series):
            break
        assert time.monotonic() < until, "no refresh was done"
        time.sleep(0.5)

    asked = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            names = check_expression(target["expr"], series)
            check_legend(target, names, series)
            asked |= names
    variable = dashboard["templating"]["list"][1]["query"]["query"]
    assert variable == "label_values(shoal_build_info, party)"
    asked = {re.sub("_bucket$", "", name) for name in asked}
    own = {family for family in families if family.startswith("shoal_")}
    assert own - asked == set(), f"no panel shows {sorted(own - asked)}"

    # These checks can fail.
    for wrong in ('shoal_nothing{party="1"}', 'shoal_rounds{state="lost"}', "rate(shoal_rounds[5m]", "shoal_rounds{$what}"):
        try:
            check_expression(wrong, series)
        except (AssertionError, ValueError):
            continue
        raise AssertionError(f"takes {wrong}")
    try:
        kept(dict(dashboard, colour="blue"), dashboard, "")
    except AssertionError:
        pass
    else:
        raise AssertionError("takes any field")
    print(f"{len(asked)} figures, {len(dashboard['panels'])} panels")


main()

"""Runs an experiment on machines of a cloud (EC2), from one text file, and removes everything afterwards.

  plan      prints every call that `run` would make, in order, and the upper cost; calls nobody
  run       makes the machines, runs the experiment, brings results and figures home, removes everything
  up        makes the machines alone; `run` goes on from there
  collect   brings home what there is so far
  down      removes everything, whatever was interrupted and when
  list      says which experiments there are

All machines belong to one account, and whoever owns it sees everything: an experiment measures, it protects nobody. The
parties of a deployment belong to different owners.

Before a step is taken it stands in a local file, so that `down` finds what a killed command made; it also asks for
everything that has the experiment's tags. Every machine ends itself after `paid_minutes`. Ctrl-C, SIGTERM and SIGHUP take
everything down. See docs/aws.md.

Exit codes: 0 done, 1 something failed (what is left is named), 2 wrong usage or file, 3 an answer was wrong or missing,
4 the upper cost is above --budget-usd, 130 interrupted.
"""

import argparse
import math
import os
import re
import secrets
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

import botocore.exceptions  # noqa: E402

from cloud import aws, experiment, infrastructure, journal, remote, workload  # noqa: E402
from cloud.aws import Failed, say  # noqa: E402
from cloud.experiment import Wrong  # noqa: E402
from lib import chain  # noqa: E402 (workload has added its folder)

_EXAMPLES = {
    "plan": "scripts/aws plan configs/aws.textproto",
    "run": "scripts/aws run configs/aws.textproto --budget-usd 6\n"
           "  scripts/aws run configs/aws.textproto --budget-usd 6 --programs bazel-bin/src --out results",
    "up": "scripts/aws up configs/aws.textproto --budget-usd 6",
    "collect": "scripts/aws collect three-parties --out results",
    "down": "scripts/aws down three-parties\n"
            "  scripts/aws down three-parties --id 0f6c2a9b41d7 --region eu-central-1    when the local file is lost",
    "list": "scripts/aws list\n  scripts/aws list --region eu-central-1 --region us-east-1    also by tags",
}
# How long after a call of unknown outcome what it made may show itself.
_SETTLE_S = 120


class OverBudget(Exception):
    """The upper cost is above what the caller allows."""


def _costs(one, out):
    for what, usd in one.costs():
        print(f"  {usd:8.2f} USD  {what}", file=out)
    print(f"  {one.upper_cost_usd():8.2f} USD  at most, for {one.paid_minutes} minutes and {experiment.BOOT_MINUTES} to boot, "
          "by the prices in the file, without tax", file=out)


def _warn(one):
    if one.parties:
        print("One account has all parties: whoever owns it, and the provider, see everything. This measures; it protects "
              "nobody.", file=sys.stderr)


def _allow(one, budget_usd):
    """Raises Wrong, OverBudget."""
    if not one.operator.is_global:
        raise Wrong(f"operator_cidr: {one.operator} is no address of the internet: which one is this machine's?")
    # Before anything is paid for.
    for program, package in (("ssh", "openssh-client"), ("ssh-keygen", "openssh-client"), ("git", "git")):
        if not shutil.which(program):
            raise Wrong(f"there is no {program}: apt-get install {package}")
    _warn(one)
    _costs(one, sys.stderr)
    if one.upper_cost_usd() > budget_usd:
        raise OverBudget(f"{one.upper_cost_usd():.2f} USD are more than --budget-usd {budget_usd:.2f}")


def plan(options):
    one = experiment.read(options.file)
    _warn(one)
    cloud = aws.Plan(one.name)
    _account(cloud, one.regions[0])
    infrastructure.Up(cloud, one, "<public key>").run()
    for line in workload.plan_steps(one, options.programs):
        print("ssh", line)
    print("ssh results and logs come home; every answer is checked once more")
    _account(cloud, one.regions[0])
    infrastructure.Down(cloud, one.regions).run()
    _costs(one, sys.stdout)
    return 0


def _account(cloud, region):
    return cloud.call(region, "sts", "GetCallerIdentity")["Account"]


def _open(name, options, make=None):
    """The journal of an experiment."""
    return journal.Journal(name, options.state, make)


def _begin(one, options):
    """A new journal, or that of the same experiment, which goes on."""
    # Without credentials nothing begins.
    account = _account(aws.Calls(), one.regions[0])

    def make():
        return {"name": one.name, "id": secrets.token_hex(6), "experiment": one.text, "commit": workload.commit(),
                "regions": one.regions, "account": account, "begun": workload.date(), "down": False}

    book = _open(one.name, options, make)
    if book.content["down"]:
        book.begin_anew(make)
    if book.content["experiment"] != one.text:
        raise Wrong(f"another file made the experiment {one.name!r}, which is there: scripts/aws down {one.name}")
    _same_account(account, book)
    return book


def _same_account(account, book):
    """Other credentials would find nothing, and take that for `nothing is left`. Raises Wrong."""
    if not book.content["account"]:
        book.set(account=account)
    if book.content["account"] != account:
        raise Wrong(f"these credentials are of account {account}, the experiment is of {book.content['account']}")


def _up(one, book):
    """Returns the machines, reached."""
    cloud = aws.Cloud(book)
    host_keys = infrastructure.Up(cloud, one, remote.make_key(book.folder)).run()
    machines = [machine for group in one.groups for machine in group.running]
    there = remote.Remote(book.folder, machines, host_keys)
    there.reach()
    book.set(machines={machine.identifier: {
        "group": machine.group.name, "index": machine.index, "private": machine.private, "public": machine.public,
        "host_key": host_keys[machine.identifier]} for machine in machines})
    return there


def _again(one, book):
    """The machines that `up` has reached."""
    known = book.content.get("machines")
    if not known:
        raise Wrong(f"{one.name}: has no machines yet: scripts/aws up")
    for group in one.groups:
        group.running = [infrastructure.Machine(group, machine.get("index", 0), identifier, machine["private"], machine["public"])
                         for identifier, machine in sorted(known.items(), key=lambda item: item[1].get("index", 0))
                         if machine["group"] == group.name]
    return remote.Remote(book.folder, [machine for group in one.groups for machine in group.running],
                         {identifier: machine["host_key"] for identifier, machine in known.items()})


def _down(book, settle_s=_SETTLE_S, by_tags=False):
    """`by_tags`: the file does not know what was begun, and when. Raises Failed, with what may be left."""
    name, regions = book.content["name"], book.content["regions"]
    cloud = aws.Cloud(book)
    try:
        _same_account(_account(cloud, regions[0]), book)
        infrastructure.Down(cloud, regions, time.time() if by_tags else book.begun_last_s(), settle_s).run()
    except (Failed, botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        made = book.made()
        raise Failed(f"{error}\naws: not everything is known to be removed; "
                     f"{'made were ' + ', '.join(made) + '; ' if made else ''}again: scripts/aws down {name}") from None
    if by_tags and not book.content.get("found"):
        raise Failed(f"nothing has the id {book.content['id']} in {', '.join(regions)}: is it in another region?")
    book.set(down=True, machines={})
    for file in ("key", "key.pub"):
        if os.path.exists(os.path.join(book.folder, file)):
            os.remove(os.path.join(book.folder, file))
    say(f"{name}: nothing is left in {', '.join(regions)}")


def _out(one, book, options):
    """The folder for results, of this experiment alone. Raises Wrong."""
    out = options.out or os.path.join(workload.ROOT, "study-results", f"aws-{one.name}-{book.content['id']}")
    workload.claim(out, book.content["id"])
    return out


def _collect(there, one, book, options, whole=False):
    out = _out(one, book, options)
    workload.collect(there, one, out, {
        "machines": ", ".join(f"{group.name}: {f'{group.machines} x ' if group.machines > 1 else ''}"
                              f"{group.instance_type} in {group.zone}" for group in one.groups),
        "commit": book.content["commit"][:12], "date": book.content["begun"]}, whole)
    print(out)


def _take_down(book, error):
    """After an error, which is said now, as removing everything may fail as well."""
    say(f"taking everything down: {str(error) or type(error).__name__}")
    _down(book)


def up(options):
    one = experiment.read(options.file)
    _allow(one, options.budget_usd)
    book = _begin(one, options)
    try:
        there = _up(one, book)
        for machine in there.machines:
            print(aws.printable(f"{machine}\t{machine.identifier}\t{machine.public}"))
        return 0
    except BaseException as error:
        if not options.keep:
            _take_down(book, error)
        raise


def run(options):
    one = experiment.read(options.file)
    _allow(one, options.budget_usd)
    if one.study and options.programs:
        raise Wrong("--programs: a study is built on its machine")
    for program in workload.programs_of(one) if options.programs else ():
        if not os.path.exists(os.path.join(options.programs, program)):
            raise Wrong(f"--programs: no {options.programs}/{program}")
    book = _begin(one, options)
    _out(one, book, options)
    try:
        there = _up(one, book)
        # Longer than this no machine is there.
        limit_s = one.paid_minutes * 60
        workload.install(there, one, options.programs, limit_s)
        try:
            (workload.Study if one.study else workload.Rounds)(there, one).run(limit_s)
        except (Failed, chain.Failed) as error:
            # What there is comes home all the same, with the logs that say why.
            say(f"failed: {error}")
            _collect(there, one, book, options)
            raise
        _collect(there, one, book, options, whole=True)
    except BaseException as error:
        if not options.keep:
            _take_down(book, error)
        raise
    finally:
        if options.keep:
            say(f"kept, and paid for: scripts/aws down {one.name}")
    if not options.keep:
        _down(book)
    return 0


def collect(options):
    book = _open(options.name, options)
    one = experiment.Experiment(book.content["experiment"])
    _collect(_again(one, book), one, book, options)
    return 0


def down(options):
    if options.id:
        # What the provider is asked for may be a pattern; "*" is everybody's.
        if not re.fullmatch("[0-9a-f]{12}", options.id):
            raise Wrong("--id: 12 digits and letters a to f, as scripts/aws list has them")
        if not options.region:
            raise Wrong("--id: needs each --region to look into")
        # Without the file: by the tags alone, for as long as something new may show itself.
        book = _open(options.name, options, lambda: {
            "name": options.name, "id": options.id, "experiment": "", "regions": [], "account": "",
            "begun": workload.date(), "commit": "", "down": False})
        if book.content["id"] != options.id:
            raise Wrong(f"the file of {options.name!r} is of another one, {book.content['id']}")
    else:
        book = _open(options.name, options)
    if options.region:
        book.set(regions=sorted({*book.content["regions"], *options.region}))
    _down(book, options.settle_s, bool(options.id))
    return 0


def list_(options):
    for name in journal.names(options.state):
        try:
            content = journal.peek(name, options.state)
        except Wrong as wrong:
            aws.tell(f"aws: {wrong}")
            continue
        state = "down" if content["down"] else f"{len(content.get('machines') or {})} machines reached"
        print(aws.printable(f"{name}\t{content['id']}\t{','.join(content['regions'])}\t{content['begun']}\t{state}"))
    calls = aws.Calls()
    for region in options.region:
        found = {}
        for kind, how in aws.KINDS.items():
            for thing in calls.described(region, kind, [{"Name": "tag-key", "Values": ["shoal-experiment"]}]):
                if aws.lives(thing):
                    tags = aws.tags(thing)
                    key = tags.get("shoal-name", "?"), tags.get("shoal-experiment", "?")
                    found.setdefault(key, []).append(f"{kind} {thing[how.identifier]}")
        for (name, identifier), things in sorted(found.items()):
            # Whoever owns something of the account may give it any tag: none of them makes a line or a field.
            print("\t".join(aws.printable(field).replace("\n", "\\n").replace("\t", "\\t")
                            for field in (name, identifier, region, "by tags", ", ".join(things))))
    return 0


def _usd(text):
    usd = float(text)
    if not (usd > 0 and math.isfinite(usd)):
        raise ValueError(text)
    return usd


def _parser():
    parser = argparse.ArgumentParser(
        prog="scripts/aws", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  " + "\n  ".join(_EXAMPLES.values()), allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name, about, do):
        one = commands.add_parser(name, help=about, description=about[:1].upper() + about[1:] + ".", allow_abbrev=False,
                                  epilog=f"examples:\n  {_EXAMPLES[name]}",
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        one.set_defaults(do=do)
        one.add_argument("--state", metavar="DIR", help="where the files of experiments are (~/.local/state/shoal-aws)")
        return one

    for name, about, do in (("plan", "prints every call that `run` would make, in order, and the upper cost", plan),
                            ("run", "makes the machines, runs the experiment, brings results home, removes everything", run),
                            ("up", "makes the machines; if that fails, removes everything", up)):
        one = command(name, about, do)
        one.add_argument("file", metavar="FILE", help="the experiment (configs/aws.textproto is a sample)")
        if name != "plan":
            one.add_argument("--budget-usd", type=_usd, required=True, metavar="USD",
                             help="nothing is made if the upper cost is above this")
            one.add_argument("--keep", action="store_true", help="leave the machines, also after a failure")
        if name != "up":
            one.add_argument("--programs", metavar="DIR", help="take shoal and shoald from DIR, as bazel-bin/src, for Debian "
                             "12; without it each machine builds the last commit")
        if name == "run":
            one.add_argument("--out", metavar="DIR", help="results (study-results/aws-NAME-ID)")
    one = command("collect", "brings home what there is so far", collect)
    one.add_argument("name", metavar="NAME")
    one.add_argument("--out", metavar="DIR", help="results (study-results/aws-NAME-ID)")
    one = command("down", "removes everything, whatever was interrupted and when", down)
    one.add_argument("name", metavar="NAME")
    one.add_argument("--id", metavar="ID", help="the tag shoal-experiment, when the local file is lost")
    one.add_argument("--region", metavar="REGION", action="append", default=[], help="where to look, besides what the file "
                     "says")
    one.add_argument("--settle-s", type=float, default=_SETTLE_S, metavar="SECONDS", help="how long after an interrupted "
                     f"call to look for what it may have made ({_SETTLE_S})")
    one = command("list", "says which experiments there are", list_)
    one.add_argument("--region", metavar="REGION", action="append", default=[], help="also what has the tags there")
    return parser


def _end(*_):
    # Once: what is taken down then is not stopped by those that follow, as when a terminal and its session end.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments=None):
    options = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Not where `nohup` asks for the opposite.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        return options.do(options)
    except Wrong as wrong:
        aws.tell(f"aws: {wrong}")
        return 2
    except OverBudget as over:
        aws.tell(f"aws: {over}")
        return 4
    except chain.WrongAnswers as wrong:
        aws.tell(f"aws: WRONG ANSWERS: {wrong}")
        return 3
    except (Failed, chain.Failed, botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, OSError) as error:
        aws.tell(f"aws: {error}")
        return 1
    except KeyboardInterrupt:
        aws.tell("aws: interrupted; scripts/aws list says what there is, scripts/aws down NAME removes it")
        return 130


if __name__ == "__main__":
    sys.exit(main())

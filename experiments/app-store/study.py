"""The app store: devices that look for updates, in windows over a day, in terms, or by downloads."""

import math
import sys

from matplotlib.ticker import NullLocator

from lib import chain, plots, results, runner

_DAY_S = 24 * 3600
# Applications of a device. Every device pads to this many queries.
_APPS = 20
# The privacy of every round, for as many queries of a device as are protected together.
_EPSILON, _DELTA = 1.0, 1e-6
# --protect, as scripts/local-chain has it, and what figures and tables call it.
_PROTECTS = {"list": "whole lists", "lookup": "single lookups"}
# What the paper says about Google Play (section 2), for the plans beside the measured rounds.
_STORE_APPS, _STORE_DEVICES = 2_500_000, 3_000_000_000
# Lists that are asked for daily: a term's refreshes after its round, so that it has 30 days; the crowd of the
# comparison by lists; queries in a round, at most (a roster allows 2^30).
_REFRESHES, _WATCHERS, _MOST_QUERIES = 29, 1_000_000, 1 << 28
# The smallest crowd that figures show.
_FEWEST = 100
# Queries an application in the comparison by crowds, as `shoal plan` takes them (QueryShares in src/plan/engines.h).
_SHARES = [1e-3 * math.sqrt(10) ** k for k in range(12)]
# What a device can do, in the order of tables: what `shoal plan` calls it, and how figures name and draw it.
_WAYS = {
    "term": ("a term", plots.BLUE, "o"),
    "round": ("a round a day", plots.PURPLE, "s"),
    "differences": ("download: daily differences", plots.ORANGE, "D"),
    "table": ("download: the table", plots.BROWN, "v"),
    "simplepir": ("SimplePIR", plots.GREEN, "^"),
    "hintless": ("SimplePIR without a hint", plots.TEAL, "P"),
}
_DOWNLOADS = ("differences", "table")
_COSTS = ("bytes", "cpu_s", "price")  # of a device and day
_WATCH_COLUMNS = tuple(f"{way}_{cost}" for way in _WAYS for cost in _COSTS) + (
    "term_month_epsilon", "term_month_delta", "round_month_epsilon", "round_month_delta", "room_percent",
    "displaced_keys", "lists_bytes", "whole_refresh_cpu_s", "whole_round_cpu_s", "at_rest_bytes", "term_from_queries")
# Examples, as `shoal plan` has them.
_PRICE_CORE_HOUR, _PRICE_GB = 0.04, 0.05


def _phi(protect, queries):
    """How many of a device's queries in a round the noise protects together."""
    return queries if protect == "list" else 1


def _watched(rows, engine, **where):
    """Lines of results of lists that are asked for daily, by columns."""
    return [row for row in rows if row["engine"] == engine
            and all(float(row[name]) == value for name, value in where.items())]


def _values(rows, column):
    return sorted({int(float(row[column])) for row in rows})


def _cheapest(row, cost, ways=tuple(_WAYS)):
    """The way that costs least of all that there are."""
    return min((way for way in ways if row[f"{way}_{cost}"]), key=lambda way: float(row[f"{way}_{cost}"]))


def _protection(row):
    """What the noise of a point, or of a line of results, protects."""
    return f"{_PROTECTS[row['protect']]} protected (phi = {row['phi']})"


class AppStore(runner.ChainStudy):
    name = "app-store"
    title = "The app store: batching windows over a day"
    about = (
        f"Every device has {_APPS} applications and looks once a day whether there are newer versions. A day is cut into "
        "windows; the devices that come in one window are one round, and wait for its end. Many windows mean short waits and "
        "small rounds, each of which pays all the noise.\n\n"
        f"By default the noise protects whole lists: all {_APPS} queries of a device in a round together (phi = {_APPS}). "
        "With --protect lookup it protects single lookups: any one query of a device (phi = 1), but not its list. "
        f"Either is for one round, so for a day, at (epsilon, delta) = ({_EPSILON:g}, {_DELTA:g}); rounds of several days "
        "add up (docs/privacy.md). Two parties, a hashed table (names of 24 bytes, "
        "versions of 12), rows as the planner chooses them for each window. Every line is one real round; a day is as "
        "many of them as it has windows. Devices really connect: three TLS connections each, from one process. "
        "Processor time and price are those of the parties' whole processes: the stages, and TLS, the system, and the "
        "frontend's work for clients; a device's wait is half a window, the mean, and the online stage.\n\n"
        "Below, what `shoal plan` predicts for the store of the paper (2.5 million applications, 3 billion devices): "
        "predicted, not measured.\n\n"
        "What follows then is about a list of keys that a device wants to know of every day, for 30 days: a round a day; a "
        "term, in which the list is asked once and answered every day; downloads of the whole table, or once of the table and "
        "daily of what changed; SimplePIR, with a hint and without. Its unit costs are measured on this machine in this run "
        "(costs.textproto); everything that is made of them is modelled by `shoal plan` (docs/planner.md), and drawn dotted, "
        "with crosses. A download has records alone, signed once; engines follow an epoch by the least bytes that can do. What "
        "a device fetches once, when it begins, is not in a day's cost.")
    point_columns = results.POINT + ("protect", "windows_per_day", "devices_per_day", "list", "changed_percent")
    measured_columns = results.MEASURED + _WATCH_COLUMNS

    def add_options(self, parser):
        parser.add_argument("--protect", choices=list(_PROTECTS), default="list",
                            help="what the noise protects: a device's whole list in a round (default), or "
                                 "single lookups only; with the same --out, tables and figures show both")

    def prepare(self, bench, out):
        # The smallest run, which is a test, does without.
        if self.options.size != "tiny":
            runner.calibrate(bench, out)

    @staticmethod
    def _watch_points(size):
        lists, changes, stores = {
            "tiny": ([4], [5], [2000]),
            "quick": ([10, 30, 100], [1, 5], [10_000, 100_000, _STORE_APPS]),
            "full": ([10, 20, 50, 100], [1, 5], [10_000, 100_000, _STORE_APPS]),
        }[size]
        for apps in stores:
            for changed in changes:
                for each in lists:
                    point = {"layout": "hashed", "records": apps, "value_bytes": 12, "keys_per_row": 0, "parties": 2,
                             "epsilon": _EPSILON, "delta": _DELTA, "phi": each, "repetition": 1, "protect": "list",
                             "windows_per_day": 1, "list": each, "changed_percent": changed}
                    yield {**point, "engine": "watch", "queries": _WATCHERS * each, "devices": _WATCHERS,
                           "devices_per_day": _WATCHERS}
                    for share in _SHARES:
                        queries = round(share * apps)
                        if each <= queries <= _MOST_QUERIES:
                            yield {**point, "engine": "watch-crowd", "queries": queries, "devices": queries // each,
                                   "devices_per_day": queries // each}

    def points(self, size):
        return self._round_points(size) + list(self._watch_points(size))

    def _round_points(self, size):
        protect = self.options.protect
        apps, devices, windows = {
            "tiny": (2000, 40, [2]),
            "quick": (10_000, 2400, [1, 4, 24]),
            "full": (25_000, 96_000, [1, 4, 24, 96]),
        }[size]
        points = [
            {"engine": "shoal", "layout": "hashed", "records": apps, "value_bytes": 12, "keys_per_row": 0,
             "queries": devices // w * _APPS, "devices": devices // w, "parties": 2, "epsilon": _EPSILON,
             "delta": _DELTA, "phi": _phi(protect, _APPS), "repetition": 1, "protect": protect,
             "windows_per_day": w, "devices_per_day": devices, "list": _APPS, "changed_percent": 0}
            for w in windows]
        if size == "tiny":
            return points
        # One query of each device in 24 windows, and a hundred queries of each in rounds as large
        # as a roster allows.
        for each, w in ((1, 24), (100, 1440)):
            points.append(
                {"engine": "shoal-plan", "layout": "hashed", "records": _STORE_APPS, "value_bytes": 12,
                 "keys_per_row": 0, "queries": _STORE_DEVICES // w * each, "devices": _STORE_DEVICES // w,
                 "parties": 2, "epsilon": _EPSILON, "delta": _DELTA, "phi": _phi(protect, each), "repetition": 1,
                 "protect": protect, "windows_per_day": w, "devices_per_day": _STORE_DEVICES, "list": each,
                 "changed_percent": 0})
        return points

    def apps(self, point):
        return _APPS

    @staticmethod
    def _watch(point, bench):
        """What a list costs that is wanted every day. One plan has all crowds."""
        plan = bench.programs.plan(costs=bench.costs, **{
            **chain.plan_options(point), "queries": _WATCHERS * point["list"], "refreshes": _REFRESHES,
            "changed_percent": point["changed_percent"],
            # What protects a list best, which takes the planner half of its time to find out.
            "mechanism": "split_gaussian"})
        term = plan["term"]
        ways = term["way"]
        if point["engine"] == "watch-crowd":
            ways = next(at["way"] for at in term["by_queries"] if round(at["queries"]) == point["queries"])
        measured = {}
        for way in ways:
            if not way["refused"]:
                measured.update({f"{way['way']}_{cost}": way[name] for cost, name in
                                 zip(_COSTS, ("client_bytes", "server_seconds", "price"))})
        for way in term["way"]:
            if way["month_submissions"]:
                measured.update({f"{way['way']}_month_{name}": way[f"month_{name}"] for name in ("epsilon", "delta")})
        table = plan["table"]
        return {**measured, "rows": round(table["rows"]), "row_bytes": ways[0]["row_bytes"],
                "mechanism": plan["noise"]["mechanism"], "noise_per_row": plan["noise"]["mean_per_row"],
                "room_percent": table["room_percent"], "displaced_keys": term["displaced_keys"],
                "lists_bytes": table["list_bytes"], "whole_refresh_cpu_s": term["refresh_cpu_s"],
                "whole_round_cpu_s": 3600 * plan["per_round"]["core_hours"],
                "at_rest_bytes": sum(party["at_rest_bytes"] for party in term["party"]),
                "term_from_queries": term["beats_differences_from_queries"]}

    def run(self, point, bench):
        if point["engine"] == "shoal":
            return super().run(point, bench)
        if point["engine"].startswith("watch"):
            return self._watch(point, bench)
        plan = bench.programs.plan(costs=bench.costs, **chain.plan_options(point))
        total = lambda *stages: sum(party[f"{stage}_cpu_s"] for party in plan["party"] for stage in stages)
        return {
            "rows": round(plan["table"]["rows"]), "row_bytes": plan["table"]["row_bytes"],
            "answer_bytes": plan["table"]["answer_bytes"], "mechanism": plan["noise"]["mechanism"],
            "noise_per_row": plan["noise"]["mean_per_row"],
            "noise_queries": plan["noise_queries_per_round"],
            "noise_cpu_s": total("noise"), "offline_cpu_s": total("offline"),
            "online_cpu_s": total("online", "answers"),
            "parties_cpu_s": total("offline", "online", "answers", "links"),
            "link_bytes": sum(hop["onion_bytes"] + hop["query_bytes"] + hop["answer_bytes"]
                              for hop in plan["hop"] if hop["from"] > 0),
            "client_sent_bytes": (plan["client"]["onion_bytes"] + plan["client"]["query_bytes"]) * point["queries"],
            "client_received_bytes": plan["client"]["answer_bytes"] * point["queries"],
        }

    def repeats(self, point):
        return point["engine"] == "shoal"

    def cost(self, point, bench):
        if point["engine"] != "shoal":
            return runner.Cost(seconds=8 if point["engine"] == "watch" else 0.1)
        return super().cost(point, bench)

    def describe(self, point):
        if point["engine"].startswith("watch"):
            return (f"planned: {runner.grouped(point['devices'])} devices with lists of {point['list']}, "
                    f"{runner.grouped(point['records'])} applications of which {point['changed_percent']} % change a day")
        if point["engine"] != "shoal":
            return (f"predicted: {runner.grouped(point['devices'])} devices in each of {point['windows_per_day']} "
                    f"windows, {_protection(point)}")
        return (f"{runner.grouped(point['devices'])} devices in each of {point['windows_per_day']} windows, "
                f"{_protection(point)}")

    def describe_result(self, row):
        if row["engine"].startswith("watch"):
            return (f"cheapest: {_WAYS[_cheapest(row, 'price')][0]}; fewest bytes: "
                    f"{_WAYS[_cheapest(row, 'bytes')][0]}")
        if row["engine"] != "shoal":
            return f"{float(row['online_cpu_s']):,.0f} processor seconds online"
        return super().describe_result(row)

    @staticmethod
    def day(row):
        """What a day costs a device: wait, processor time, bytes, money."""
        value = lambda name: float(row[name])
        rounds, devices = value("windows_per_day"), value("devices_per_day")
        stages = sum(value(name) for name in ("noise_cpu_s", "offline_cpu_s", "online_cpu_s")) * rounds / devices
        cpu = (value("noise_cpu_s") + value("parties_cpu_s")) * rounds / devices
        client = (value("client_sent_bytes") + value("client_received_bytes")) * rounds / devices
        links = value("link_bytes") * rounds / devices
        return {
            "window_s": _DAY_S / rounds,
            "mean_wait_s": _DAY_S / rounds / 2 + float(row["online_s"] or 0),
            "stages_cpu_s": stages, "cpu_s": cpu,
            "client_bytes": client, "link_bytes": links,
            "price": cpu / 3600 * _PRICE_CORE_HOUR + (client + links) / 1e9 * _PRICE_GB,
        }

    def figures(self, rows, out):
        found = [self._windows_figure(rows)]
        if _watched(rows, "watch"):
            found += [self._map_figure(rows), self._crowd_figure(rows), self._lists_figure(rows), self._privacy_figure(rows)]
        del out
        return found

    _MODELLED = ("Crosses and dotted lines: modelled by shoal plan from unit costs that this run measured. Two parties, rows and room "
                 "as the planner chooses them for a term of 30 days; whole lists protected (phi = list) at (1, 1e-06). Prices: "
                 f"{_PRICE_CORE_HOUR} a core hour, {_PRICE_GB} a gigabyte on every link.")

    @staticmethod
    def _share(rows, cost):
        """(of how many lines a download costs less than a term, lines)"""
        return sum(float(row[f"{_cheapest(row, cost, _DOWNLOADS)}_{cost}"]) < float(row[f"term_{cost}"]) for row in rows), len(rows)

    def _map_figure(self, rows):
        """Which way is cheapest, for lists of each length and crowds of each size."""
        crowds = _watched(rows, "watch-crowd")
        stores, changes = _values(crowds, "records"), _values(crowds, "changed_percent")
        figure = plots.Figure("cheapest", "Where a download is the cheapest way to follow a list",
                              panels=len(stores) * len(changes), across=len(stores), height=2.7)
        lists = _values(crowds, "list")
        short = {"term": "a term", "differences": "download\ndifferences", "table": "download\nthe table",
                 "simplepir": "SimplePIR", "hintless": "SimplePIR\nwithout a hint"}
        # A round a day costs nearly what a term does, and reveals more.
        compared = [way for way in _WAYS if way != "round"]
        top = max(float(row["devices"]) for row in crowds)
        for axis, (changed, apps) in zip(figure.axes, ((c, s) for c in changes for s in stores)):
            areas = {}
            for at, each in enumerate(lists):
                mine = sorted(_watched(crowds, "watch-crowd", records=apps, changed_percent=changed, list=each),
                              key=lambda row: float(row["devices"]))
                mine = [row for row in mine if float(row["devices"]) >= _FEWEST]
                for i, row in enumerate(mine):
                    here = float(row["devices"])
                    low = _FEWEST if i == 0 else math.sqrt(here * float(mine[i - 1]["devices"]))
                    high = here if i + 1 == len(mine) else math.sqrt(here * float(mine[i + 1]["devices"]))
                    way = _cheapest(row, "price", compared)
                    axis.bar(at, high - low, bottom=low, width=1, color=_WAYS[way][1], alpha=0.55, linewidth=0)
                    if high > low:
                        areas.setdefault(way, []).append((at, math.log10(low), math.log10(high)))
            for way, boxes in areas.items():
                # In the middle of its area.
                weight = sum(high - low for _, low, high in boxes)
                x = sum(at * (high - low) for at, low, high in boxes) / weight
                y = sum((low + high) / 2 * (high - low) for _, low, high in boxes) / weight
                if weight > 0.3:
                    axis.text(x, 10 ** y, short[way], ha="center", va="center", fontsize=8, color="black")
            axis.set_yscale("log")
            axis.set_ylim(_FEWEST, top)
            axis.set_xlim(-0.5, len(lists) - 0.5)
            axis.set_xticks(range(len(lists)), labels=[str(each) for each in lists])
            axis.grid(False)
            axis.set(title=f"{runner.grouped(apps)} apps, {changed} % change a day", xlabel="keys in a device's list")
            axis.title.set_fontsize(9)
        for axis in figure.axes[::len(stores)]:
            axis.set_ylabel("devices")
        names = []
        for apps in stores:
            part = [row for row in _watched(crowds, "watch-crowd", records=apps) if float(row["devices"]) >= _FEWEST]
            won, of = self._share(part, "price")
            names.append(f"{won / of:.0%} {'of the cases ' if not names else ''}with {runner.grouped(apps)} apps")
        large = [row for row in crowds if float(row["devices"]) >= _FEWEST]
        rounds = sorted(float(row["round_price"]) / float(row["term_price"]) for row in large)
        figure.conclude(f"By money a download is cheaper than a term in {', '.join(names)}. A round a day costs "
                        f"{rounds[0]:.2f} to {rounds[-1]:.2f} times as much as a term, and reveals more.")
        return (figure, "Colours: the cheapest way, by processor time and traffic of all links; rounds a day are left out; white: more "
                        "queries than a round can have, or 1,000 an application. " + self._MODELLED, crowds)

    def _way_lines(self, axis, rows, x, cost, scale, changes):
        """A line for each way, over x; where changes matter most, one for each."""
        first = min(changes)
        for way, (name, color, marker) in _WAYS.items():
            for changed in changes if way == "differences" else (first,):
                points = sorted((float(row[x]), scale * float(row[f"{way}_{cost}"])) for row in rows
                                if int(float(row["changed_percent"])) == changed and row[f"{way}_{cost}"])
                if points:
                    label = f"download: {changed}\u00a0% changed" if way == "differences" else name
                    axis.plot(*zip(*points), **plots.modelled(color, marker="x", label=label),
                              **({"alpha": 0.6} if changed != first else {}))

    @staticmethod
    def _shade(axis, points, label):
        """Shades where a download wins: points of (x, whether it does), on a logarithmic axis."""
        # Room for the words.
        low, high = axis.get_ylim()
        axis.set_ylim(low, high * (high / low) ** 0.14)
        points = sorted(points)
        if not any(won for _, won in points):
            return
        edges = [points[0][0]] + [math.sqrt(a * b) for (a, _), (b, _) in zip(points, points[1:])] + [points[-1][0]]
        for i, (_, won) in enumerate(points):
            if won:
                axis.axvspan(edges[i], edges[i + 1], color=plots.ORANGE, alpha=0.16, linewidth=0)
        middle = [math.log10(edges[i] * edges[i + 1]) / 2 for i, (_, won) in enumerate(points) if won]
        axis.text(10 ** (sum(middle) / len(middle)), 0.985, label, transform=axis.get_xaxis_transform(), ha="center", va="top",
                  fontsize=6.5, color="#8a4a08", linespacing=1.0)

    def _crowd_figure(self, rows):
        """Money over the number of devices."""
        crowds = _watched(rows, "watch-crowd")
        lists, changes = _values(crowds, "list"), _values(crowds, "changed_percent")
        each = min(lists, key=lambda some: abs(some - _APPS))
        crowds = _watched(crowds, "watch-crowd", list=each)
        stores, first = _values(crowds, "records"), min(changes)
        figure = plots.Figure("crowds", f"What a device pays to follow {each} applications", panels=len(stores), across=len(stores),
                              height=3.7)
        meets = []
        for axis, apps in zip(figure.axes, stores):
            mine = [row for row in _watched(crowds, "watch-crowd", records=apps) if float(row["devices"]) >= _FEWEST]
            self._way_lines(axis, mine, "devices", "price", 1e6, changes)
            here = _watched(mine, "watch-crowd", changed_percent=first)
            plots.logarithmic(axis)
            self._shade(axis, [(float(row["devices"]), _cheapest(row, "price", ("term",) + _DOWNLOADS) in _DOWNLOADS)
                               for row in here], "a download\nwins")
            axis.set(title=f"{runner.grouped(apps)} applications", xlabel="devices")
            queries = float(here[0]["term_from_queries"])
            meets.append((f"from {runner.grouped(float(f'{queries / each:.2g}'))} devices on" if queries else "never")
                         + f" with {runner.grouped(apps)} applications")
        figure.axes[0].set_ylabel("price of a million devices and days")
        figure.conclude(f"With {first} % changing a day a term is cheaper than daily differences {', '.join(meets)}.")
        return (figure, f"Shaded: a download costs less than a term, where {first} % change a day; so do all lines that do not say "
                        "otherwise. "
                + self._MODELLED, crowds)

    def _lists_figure(self, rows):
        """Traffic and processor time over the length of lists."""
        watch = _watched(rows, "watch")
        stores, changes = _values(watch, "records"), _values(watch, "changed_percent")
        first = min(changes)
        figure = plots.Figure("lists", f"What following a list costs a device and day, {runner.grouped(_WATCHERS)} devices",
                              panels=2 * len(stores), across=len(stores), height=3.3)
        for line, (cost, scale, label) in enumerate((("bytes", 1e-3, "kilobytes, up and down"),
                                                     ("cpu_s", 1e3, "processor ms, all servers"))):
            for axis, apps in zip(figure.axes[line * len(stores):], stores):
                mine = _watched(watch, "watch", records=apps)
                self._way_lines(axis, mine, "list", cost, scale, changes)
                here = _watched(mine, "watch", changed_percent=first)
                plots.logarithmic(axis)
                self._shade(axis, [(float(row["list"]), float(row[f"{_cheapest(row, cost, _DOWNLOADS)}_{cost}"])
                                    < float(row[f"term_{cost}"])) for row in here], "a download wins")
                lists = _values(mine, "list")
                axis.set_xticks(lists, labels=[str(each) for each in lists])
                axis.xaxis.set_minor_locator(NullLocator())
                if line == 0:
                    axis.set_title(f"{runner.grouped(apps)} applications")
                else:
                    axis.set_xlabel("keys in a device's list")
            figure.axes[line * len(stores)].set_ylabel(label)
        won_bytes, of = self._share(watch, "bytes")
        won_cpu, _ = self._share(watch, "cpu_s")
        ratio = [float(row["whole_round_cpu_s"]) / float(row["whole_refresh_cpu_s"]) for row in watch]
        figure.conclude(f"A download moves fewer bytes to a device than a term in {won_bytes} of {of} cases, and takes less processor time "
                        f"in {won_cpu}; a refresh takes the parties 1/{max(ratio):.0f} to 1/{min(ratio):.0f} of its round's processor time.")
        return (figure, f"Shaded: a download takes less than a term, where {first} % change a day. " + self._MODELLED, watch)

    def _privacy_figure(self, rows):
        """What the ledger says of 30 days."""
        watch = _watched(rows, "watch")
        first, apps = min(_values(watch, "changed_percent")), max(_values(watch, "records"))
        watch = sorted(_watched(watch, "watch", changed_percent=first, records=apps), key=lambda row: float(row["list"]))
        figure = plots.Figure("privacy", "What 30 days reveal of a list: epsilon by the ledger", height=2.6)
        axis, = figure.axes
        told = {}
        for way in ("round", "term"):
            name, color, marker = _WAYS[way]
            points = [(float(row["list"]), float(row[f"{way}_month_epsilon"])) for row in watch]
            deltas = sorted({float(row[f"{way}_month_delta"]) for row in watch})
            axis.plot(*zip(*points), **plots.ours(color, marker, f"{name}, delta {' or '.join(f'{d:g}' for d in deltas)}"))
            told[way] = max((float(row[f"{way}_month_epsilon"]), float(row[f"{way}_month_delta"])) for row in watch)
        axis.set_xscale("log")
        lists = _values(watch, "list")
        axis.set_xticks(lists, labels=[str(each) for each in lists])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set(xlabel="keys in a device's list", ylabel="epsilon", ylim=(0, None))
        figure.conclude("Asked for in a round a day, a list shows epsilon up to {:.1f} at delta {:g} after 30 days; asked once in a term of "
                        "30 days, {:.1f} at delta {:g}. A download shows nothing.".format(*told["round"], *told["term"]))
        return (figure, "Computed exactly, not measured: the least noise that protects a list of each length (phi = list) at (1, 1e-06) in "
                        "one round, composed over 30 rounds, or once. Where no epsilon holds at delta 1e-06, the ledger takes the next "
                        "power of ten at which one does.", watch)

    def _windows_figure(self, rows):
        measured = [row for row in rows if row["engine"] == "shoal"]
        figure = plots.Figure("app-store", self.title, panels=3, across=3, height=3.6)
        latency, cpu, traffic = figure.axes

        def line(axis, protect, y, **style):
            points = [(float(row["windows_per_day"]), y(row)) for row in measured if row["protect"] == protect]
            plots.through_medians(axis, points, **style)

        for protect, color, marker, part in (("list", plots.BLUE, "o", plots.PURPLE),
                                             ("lookup", plots.RED, "^", plots.GREEN)):
            some = [row for row in measured if row["protect"] == protect]
            if not some:
                continue
            name = _protection(some[0])
            if protect == measured[0]["protect"]:
                line(latency, protect, lambda row: self.day(row)["mean_wait_s"],
                     **plots.ours(plots.GRAY, "d", "mean wait for an answer: half a window"))
                line(traffic, protect, lambda row: self.day(row)["client_bytes"] / 1e3,
                     **plots.ours(plots.GRAY, "s", f"sent and received by the device: {_PROTECTS[protect]}"))
            line(latency, protect, lambda row: float(row["online_s"]), **plots.ours(color, marker, name))
            line(cpu, protect, lambda row: 1e3 * self.day(row)["cpu_s"], **plots.ours(color, marker, name))
            line(cpu, protect, lambda row: 1e3 * self.day(row)["stages_cpu_s"],
                 **plots.ours(part, "v", f"of it, in the stages: {_PROTECTS[protect]}"))
            line(traffic, protect, lambda row: (self.day(row)["client_bytes"] + self.day(row)["link_bytes"]) / 1e3,
                 **plots.ours(color, marker, name))
        latency.set(title="waiting, and the online stage", ylabel="seconds")
        cpu.set(title="all parties' processes", ylabel="processor milliseconds a device and day")
        traffic.set(title="on all links", ylabel="kilobytes a device and day")
        for axis in figure.axes:
            plots.logarithmic(axis)
            axis.set(xlabel="windows a day")
            windows = sorted({int(row["windows_per_day"]) for row in measured})
            axis.set_xticks(windows, labels=[str(w) for w in windows])
            axis.xaxis.set_minor_locator(NullLocator())
        parts = []
        for protect in dict.fromkeys(row["protect"] for row in measured):
            cpu_of = plots.medians([(int(row["windows_per_day"]), 1e3 * self.day(row)["cpu_s"]) for row in measured
                                    if row["protect"] == protect])
            few, many = min(cpu_of), max(cpu_of)
            if few != many:
                parts.append(f"{cpu_of[many] / cpu_of[few]:.1f} times where {_PROTECTS[protect]} are protected ({cpu_of[few]:.2g}, "
                             f"{cpu_of[many]:.2g} ms)")
        if parts:
            figure.conclude(f"{many} windows a day in place of {few} cost the parties so much processor time a device: "
                            + "; ".join(parts) + ".")
        some = measured[0] if measured else {"records": 0, "devices_per_day": 0}
        protected = " and ".join(dict.fromkeys(_protection(row) for row in measured))
        return (figure, f"{runner.grouped(some['records'])} applications, {runner.grouped(some['devices_per_day'])} devices a "
                        f"day, {_APPS} applications each, two parties; {protected} in one round at "
                        f"({_EPSILON:g}, {_DELTA:g}).", *([measured] if measured else []))

    def tables(self, rows):
        header = ("windows a day", "protects", "phi", "devices a round", "queries a round", "rows", "noise a row",
                  "noise a round", "mean wait", "online, s", "sent to answered, s: p50", "p99",
                  "processor ms a device and day", "of it, in the stages", "device, kB a day", "between parties, kB a device",
                  "price of a million devices and days")

        def lines(engine):
            out = []
            for row in rows:
                if row["engine"] != engine:
                    continue
                day = self.day(row)
                out.append((
                    row["windows_per_day"], _PROTECTS[row["protect"]], row["phi"], runner.grouped(row["devices"]), runner.grouped(row["queries"]),
                    runner.grouped(row["rows"]), f"{float(row['noise_per_row']):.1f}",
                    runner.grouped(float(row["noise_queries"])), runner.seconds_text(day["mean_wait_s"]),
                    f"{float(row['online_s']):.3f}" if row["online_s"] else "-",
                    *(f"{float(row[name]):.2f}" if row[name] else "-" for name in ("latency_p50_s", "latency_p99_s")),
                    f"{1e3 * day['cpu_s']:.4g}", f"{1e3 * day['stages_cpu_s']:.4g}",
                    f"{day['client_bytes'] / 1e3:.4g}", f"{day['link_bytes'] / 1e3:.4g}", f"{1e6 * day['price']:.4g}"))
            return out

        note = f" (prices: {_PRICE_CORE_HOUR} a core hour, {_PRICE_GB} a gigabyte on every link)"
        found = [("Measured rounds" + note, header, lines("shoal"))]
        if lines("shoal-plan"):
            found.append(("Predicted by shoal plan for 2.5 million applications and 3 billion devices" + note, header,
                          lines("shoal-plan")))
        watch = _watched(rows, "watch")
        if watch:
            header = ("applications", "% changing a day", "keys in a list", "room, %", "keys that wait",
                      *(f"{name}: kB, ms, price" for name, _, _ in _WAYS.values()), "cheapest",
                      "epsilon of 30 days: rounds", "term")
            lines = []
            for row in watch:
                of = lambda way: "; ".join(f"{scale * float(row[f'{way}_{cost}']):,.3g}" for cost, scale in
                                           zip(_COSTS, (1e-3, 1e3, 1e6))) if row[f"{way}_price"] else "-"
                lines.append((
                    runner.grouped(row["records"]), row["changed_percent"], row["list"], row["room_percent"],
                    runner.grouped(float(row["displaced_keys"])), *(of(way) for way in _WAYS), _WAYS[_cheapest(row, "price")][0],
                    *(f"{float(row[f'{way}_month_epsilon']):.3g} (delta {float(row[f'{way}_month_delta']):g})"
                      for way in ("round", "term"))))
            found.append((f"A list that is wanted every day, {runner.grouped(_WATCHERS)} devices: modelled from measured unit costs; "
                          "kilobytes and processor milliseconds of a device and day, price of a million of them", header, lines))
        return found


if __name__ == "__main__":
    sys.exit(runner.main(AppStore()))

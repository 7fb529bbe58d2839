"""The app store: devices that look for updates, in windows over a day."""

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
# Examples, as `shoal plan` has them.
_PRICE_CORE_HOUR, _PRICE_GB = 0.04, 0.05


def _phi(protect, queries):
    """How many of a device's queries in a round the noise protects together."""
    return queries if protect == "list" else 1


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
        "predicted, not measured.")
    point_columns = results.POINT + ("protect", "windows_per_day", "devices_per_day")

    def add_options(self, parser):
        parser.add_argument("--protect", choices=list(_PROTECTS), default="list",
                            help="what the noise protects: a device's whole list in a round (default), or "
                                 "single lookups only; with the same --out, tables and figures show both")

    def points(self, size):
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
             "windows_per_day": w, "devices_per_day": devices}
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
                 "protect": protect, "windows_per_day": w, "devices_per_day": _STORE_DEVICES})
        return points

    def apps(self, point):
        return _APPS

    def run(self, point, bench):
        if point["engine"] == "shoal":
            return super().run(point, bench)
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
            return runner.Cost(seconds=1)
        return super().cost(point, bench)

    def describe(self, point):
        if point["engine"] != "shoal":
            return (f"predicted: {runner.grouped(point['devices'])} devices in each of {point['windows_per_day']} "
                    f"windows, {_protection(point)}")
        return (f"{runner.grouped(point['devices'])} devices in each of {point['windows_per_day']} windows, "
                f"{_protection(point)}")

    def describe_result(self, row):
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
        del out
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
        return [(figure, f"{runner.grouped(some['records'])} applications, {runner.grouped(some['devices_per_day'])} devices a "
                         f"day, {_APPS} applications each, two parties; {protected} in one round at "
                         f"({_EPSILON:g}, {_DELTA:g}).")]

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
        return found


if __name__ == "__main__":
    sys.exit(runner.main(AppStore()))

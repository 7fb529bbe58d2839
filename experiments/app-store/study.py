"""The app store: devices that look for updates, in windows over a day."""

import sys

from matplotlib.ticker import NullLocator

from lib import chain, plots, results, runner

_DAY_S = 24 * 3600
# Applications of a device. Every device pads to this many queries.
_APPS = 20
# What the paper says about Google Play (section 2), for the plans beside the measured rounds.
_STORE_APPS, _STORE_DEVICES = 2_500_000, 3_000_000_000
# Examples, as `shoal plan` has them.
_PRICE_CORE_HOUR, _PRICE_GB = 0.04, 0.05


class AppStore(runner.ChainStudy):
    name = "app-store"
    title = "The app store: batching windows over a day"
    about = (
        f"Every device has {_APPS} applications and looks once a day whether there are newer versions. A day is cut into "
        "windows; the devices that come in one window are one round, and wait for its end. Many windows mean short waits and "
        "small rounds, each of which pays all the noise.\n\n"
        "Event protection hides any one of a device's queries (phi = 1); user protection hides all that a device asks in a "
        f"day (phi = {_APPS}: it comes once). Two parties, (epsilon, delta) = (0.1, 1e-6), a hashed table (names of 24 bytes, "
        "versions of 12), rows as the planner chooses them for each window. Every line is one real round; a day is as "
        "many of them as it has windows. Devices really connect: three TLS connections each, from one process. "
        "Processor time and price are those of the parties' whole processes: the stages, and TLS, the system, and the "
        "frontend's work for clients; a device's wait is half a window, the mean, and the online stage.\n\n"
        "Below, what `shoal plan` predicts for the store of the paper (2.5 million applications, 3 billion devices): "
        "predicted, not measured.")
    point_columns = results.POINT + ("windows_per_day", "devices_per_day")

    def points(self, size):
        apps, devices, windows = {
            "tiny": (2000, 40, [2]),
            "quick": (10_000, 2400, [1, 4, 24]),
            "full": (25_000, 96_000, [1, 4, 24, 96]),
        }[size]
        points = [
            {"engine": "shoal", "layout": "hashed", "records": apps, "value_bytes": 12, "keys_per_row": 0,
             "queries": devices // w * _APPS, "devices": devices // w, "parties": 2, "epsilon": 0.1,
             "delta": 1e-6, "phi": phi, "repetition": 1, "windows_per_day": w, "devices_per_day": devices}
            # Every process checks the claim of a roster with phi = 20, which adds half a minute a
            # round.
            for phi in (1, _APPS) for w in (windows[:1] if size == "quick" and phi > 1 else windows)]
        if size == "tiny":
            return points[:1]
        # One query of each device in 24 windows, and a hundred queries of each in rounds as large
        # as a roster allows.
        for each, phi, w in ((1, 1, 24), (100, 1, 1440), (100, 100, 1440)):
            if phi > 1 and size != "full":
                continue  # the search for its noise takes half a minute
            points.append(
                {"engine": "shoal-plan", "layout": "hashed", "records": _STORE_APPS, "value_bytes": 12,
                 "keys_per_row": 0, "queries": _STORE_DEVICES // w * each, "devices": _STORE_DEVICES // w,
                 "parties": 2, "epsilon": 0.1, "delta": 1e-6, "phi": phi, "repetition": 1,
                 "windows_per_day": w, "devices_per_day": _STORE_DEVICES})
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
                    f"windows, phi {point['phi']}")
        return (f"{runner.grouped(point['devices'])} devices in each of {point['windows_per_day']} windows, "
                f"phi {point['phi']}")

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
        figure = plots.Figure("app-store", self.title, panels=3, height=4.2)
        latency, cpu, traffic = figure.axes

        def line(axis, phi, y, **style):
            points = [(float(row["windows_per_day"]), y(row)) for row in measured if int(row["phi"]) == phi]
            plots.through_medians(axis, points, **style)

        line(latency, 1, lambda row: self.day(row)["mean_wait_s"],
             **plots.ours(plots.GRAY, "d", "mean wait for an answer: half a window"))
        for phi, name, color, marker in ((1, "event", plots.BLUE, "o"), (_APPS, "user", plots.RED, "^")):
            line(latency, phi, lambda row: float(row["online_s"]),
                 **plots.ours(color, marker, f"{name} protection (phi = {phi})"))
            line(cpu, phi, lambda row: 1e3 * self.day(row)["cpu_s"], **plots.ours(color, marker))
            line(traffic, phi, lambda row: (self.day(row)["client_bytes"] + self.day(row)["link_bytes"]) / 1e3,
                 **plots.ours(color, marker))
        line(traffic, 1, lambda row: self.day(row)["client_bytes"] / 1e3,
             **plots.ours(plots.GREEN, "s", "of it, sent and received by the device (event)"))
        latency.set(title="waiting, and the online stage", ylabel="seconds")
        line(cpu, 1, lambda row: 1e3 * self.day(row)["stages_cpu_s"],
             **plots.ours(plots.PURPLE, "v", "of it, in the stages (event)"))
        cpu.set(title="all parties' processes", ylabel="processor milliseconds a device and day")
        traffic.set(title="on all links", ylabel="kilobytes a device and day")
        for axis in figure.axes:
            plots.logarithmic(axis)
            axis.set(xlabel="windows a day")
            windows = sorted({int(row["windows_per_day"]) for row in measured})
            axis.set_xticks(windows, labels=[str(w) for w in windows])
            axis.xaxis.set_minor_locator(NullLocator())
        some = measured[0] if measured else {"records": 0, "devices_per_day": 0}
        return [(figure, f"{runner.grouped(some['records'])} applications, {runner.grouped(some['devices_per_day'])} devices a "
                         f"day, {_APPS} applications each, two parties, (0.1, 1e-6).")]

    def tables(self, rows):
        header = ("windows a day", "phi", "devices a round", "queries a round", "rows", "noise a row",
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
                    row["windows_per_day"], row["phi"], runner.grouped(row["devices"]), runner.grouped(row["queries"]),
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

"""From how many queries on a batched engine beats one that pays for every query by itself."""

import math


class CompletionTime:
    """Seconds against queries for a table of one size, from measured points.

    The curve is straight from point to point. Before the first point it is constant; after the last point it goes
    on at the slope of the last two.
    """

    def __init__(self, points):
        """`points`: (queries, seconds), one for each number of queries (the median of repetitions)."""
        self.points = sorted(points)
        if not self.points:
            raise ValueError("no points")

    def _segments(self):
        """(first queries, seconds there, seconds a query) of every piece."""
        (q, t), *rest = self.points
        yield 0.0, t, 0.0
        slope = 0.0
        for next_q, next_t in rest:
            # Noise of the measurement must not make more queries look cheaper.
            slope = max(0.0, (next_t - t) / (next_q - q))
            yield q, t, slope
            q, t = next_q, max(t, next_t)
        if rest:
            yield q, t, slope

    def seconds(self, queries):
        found = None
        for first, seconds, slope in self._segments():
            if queries >= first:
                found = seconds + slope * (queries - first)
        return found

    def crossover(self, per_query_s, factor=1.0):
        """The least number of queries for which an engine of `per_query_s` takes `factor` times as long.

        None if it never does.
        """
        rate = per_query_s / factor
        pieces = list(self._segments())
        for i, (first, seconds, slope) in enumerate(pieces):
            end = pieces[i + 1][0] if i + 1 < len(pieces) else math.inf
            if rate * first >= seconds:
                return first
            if rate > slope:
                queries = (seconds - slope * first) / (rate - slope)
                if queries <= end:
                    return queries
        return None


def per_query(points, records):
    """Seconds a query of an engine that pays for every query, at a table of `records`.

    `points`: (records, queries, seconds). At each size the point with most queries counts. Between and beyond
    the sizes the cost follows the power of the size that the nearest two sizes give.
    """
    best = {}
    for n, queries, seconds in points:
        if n not in best or queries > best[n][0]:
            best[n] = queries, seconds / queries
    sizes = sorted(best)
    if not sizes:
        raise ValueError("no points")
    if records in best:
        return best[records][1]
    if len(sizes) == 1:
        raise ValueError(f"one table size, {sizes[0]}: nothing is known of {records}")
    above = next((i for i, n in enumerate(sizes) if n > records), len(sizes) - 1)
    low, high = sizes[max(0, above - 1)], sizes[max(1, above)]
    power = math.log(best[high][1] / best[low][1]) / math.log(high / low)
    return best[low][1] * (records / low) ** power

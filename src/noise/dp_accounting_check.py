"""Compares Shoal's accountant with Google's dp-accounting.

Reads lines "mechanism mode left right scale_epsilon phi rounds epsilon lower upper". The noise is
built here again, from the mechanism's definition; dp-accounting rounds privacy losses up to a grid
(pessimistic) or down (optimistic), so that its two answers bracket the exact delta.
"""

import math
import sys

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld


def laplace_cdf(u, scale):
    return np.where(u < 0, np.exp(np.minimum(u, 0) / scale) / 2, 1 - np.exp(-np.maximum(u, 0) / scale) / 2)


def pmf(mechanism, mode, left, right, epsilon, phi):
    if mechanism == "clamped_laplace":
        scale = 2 * phi / epsilon
        # The masses between integers, computed from the nearer tail so that nothing cancels.
        edges = np.arange(1, 2 * mode + 1) - mode
        p = np.zeros(2 * mode + 1)
        p[0] = laplace_cdf(np.array(1 - mode), scale)
        low = np.where(edges[:-1] < 0, edges[:-1], -edges[1:])
        p[1:-1] = np.exp(low / scale) * math.expm1(1 / scale) / 2
        p[-1] = math.exp(-mode / scale) / 2
        return p
    reach = 40 if mechanism == "geometric" else 9
    k = np.arange(mode + math.ceil(reach * right)) - mode
    d = np.where(k < 0, k / left, k / right)
    p = np.exp(-np.abs(d)) if mechanism == "geometric" else np.exp(-d * d / 2)
    return p / p.sum()


def delta(p, n, epsilon, interval, pessimistic):
    still = {k: math.log(x) for k, x in enumerate(p) if x > 0}
    moved = {k + 1: x for k, x in still.items()}
    up = pld.from_two_probability_mass_functions(
        still, moved, pessimistic_estimate=pessimistic, value_discretization_interval=interval)
    # The two rows of a change are one pair of distributions in both directions: their composition
    # is the change.
    down = pld.from_two_probability_mass_functions(
        moved, still, pessimistic_estimate=pessimistic, value_discretization_interval=interval)
    pair = up.compose(down)
    return (pair if n == 1 else pair.self_compose(n)).get_delta_for_epsilon(epsilon)


def main():
    lines = 0
    for line in sys.stdin:
        mechanism, *numbers = line.split()
        mode, left, right, own_epsilon, phi, rounds, epsilon, lower, upper = map(float, numbers)
        n = int(phi * rounds)
        p = pmf(mechanism, int(mode), left, right, own_epsilon, phi)
        # Rounding moves the sum of 2n losses by about n intervals, which must stay far below
        # epsilon.
        interval = max(2e-7, min(1e-4, epsilon / (1000 * n)))
        high = delta(p, n, epsilon, interval, True)
        low = delta(p, n, epsilon, interval, False)
        # Our bounds and theirs enclose the same number, so the two intervals must meet, and both
        # must be narrow. The slack is 1e-9 (relative) for their doubles and 1e-13 for the right end
        # that pmf() cuts off.
        slack = 1e-9 * upper + 1e-13
        print(f"{line.strip()}  dp-accounting [{low:.6g}, {high:.6g}]")
        assert lower <= high + slack, "our lower bound is above their upper one"
        assert upper >= low - slack, "our upper bound is below their lower one"
        assert high - low <= 0.05 * high + 1e-12, "dp-accounting's interval is too wide to test with"
        assert upper - lower <= 0.1 * upper + 1e-12, "our interval is too wide"
        assert upper <= high * 1.0001 + slack, "our upper bound is looser than theirs"
        lines += 1
    assert lines == 36, f"{lines} lines"
    print("ok")


main()

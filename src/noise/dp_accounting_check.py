"""Compares Shoal's accountant with Google's dp-accounting.

Reads lines "mechanism mode left right scale_epsilon phi rounds copies epsilon lower upper". The noise is
built here again, from the mechanism's definition; dp-accounting rounds privacy losses up to a grid
(pessimistic) or down (optimistic), so that its two answers bracket the exact delta. Compositions
of several settings and claims come last (accountant_vectors_main.cc has their format).
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


def changes(p, n, interval, pessimistic, copies=1):
    """The privacy loss distribution of n changes under the noise p, each of so many copies."""
    still = {k: math.log(x) for k, x in enumerate(p) if x > 0}
    moved = {k + copies: x for k, x in still.items()}
    up = pld.from_two_probability_mass_functions(
        still, moved, pessimistic_estimate=pessimistic, value_discretization_interval=interval)
    # The two rows of a change are one pair of distributions in both directions: their composition
    # is the change.
    down = pld.from_two_probability_mass_functions(
        moved, still, pessimistic_estimate=pessimistic, value_discretization_interval=interval)
    pair = up.compose(down)
    return pair if n == 1 else pair.self_compose(n)


def delta(p, n, copies, epsilon, interval, pessimistic):
    return changes(p, n, interval, pessimistic, copies).get_delta_for_epsilon(epsilon)


def claim(epsilon, delta_, n, interval, pessimistic):
    """n mechanisms of which only the claim is known: the worst one says all with probability delta, and otherwise the
    truth with odds e^epsilon."""
    truth = 1 / (1 + math.exp(-epsilon))
    one = {0: delta_, 1: (1 - delta_) * truth, 2: (1 - delta_) * (1 - truth)}
    other = {1: one[2], 2: one[1], 3: delta_}
    logs = [{k: math.log(x) for k, x in side.items()} for side in (other, one)]
    part = pld.from_two_probability_mass_functions(
        *logs, pessimistic_estimate=pessimistic, value_discretization_interval=interval)
    return part if n == 1 else part.self_compose(n)


def check_composition(line):
    head, *groups = line.split("|")
    epsilon, lower, upper, target, holds = map(float, head.split()[1:])
    interval = 1e-5

    def composed(pessimistic):
        whole = None
        for group in groups:
            kind, *numbers = group.split()
            numbers = [float(number) for number in numbers]
            if kind == "claim":
                part = claim(numbers[0], numbers[1], int(numbers[2]), interval, pessimistic)
            else:
                mode, left, right, own_epsilon, phi, n = numbers
                part = changes(pmf(kind, int(mode), left, right, own_epsilon, phi), int(n), interval, pessimistic)
            whole = part if whole is None else whole.compose(part)
        return whole

    high, low = composed(True), composed(False)
    high_delta, low_delta = high.get_delta_for_epsilon(epsilon), low.get_delta_for_epsilon(epsilon)
    high_epsilon = high.get_epsilon_for_delta(target)
    low_epsilon = low.get_epsilon_for_delta(target)
    print(f"{line.strip()}  dp-accounting delta [{low_delta:.6g}, {high_delta:.6g}], "
          f"epsilon [{low_epsilon:.6g}, {high_epsilon:.6g}]")
    # dp-accounting leaves the tails out up to 1e-15 or so.
    slack = 1e-9 * upper + 1e-13
    assert lower <= high_delta + slack, "our lower bound is above their upper one"
    assert upper >= low_delta - slack, "our upper bound is below their lower one"
    assert upper - lower <= 0.1 * upper + 1e-12, "our interval is too wide"
    assert upper <= high_delta * 1.001 + slack, "our upper bound is looser than theirs"
    assert low_epsilon * (1 - 1e-9) - 1e-12 <= holds, "our epsilon is below their lower one"
    assert holds <= high_epsilon * 1.001 + 1e-9, "our epsilon is looser than theirs"


def main():
    lines = compositions = 0
    for line in sys.stdin:
        if line.startswith("composed"):
            check_composition(line)
            compositions += 1
            continue
        mechanism, *numbers = line.split()
        mode, left, right, own_epsilon, phi, rounds, copies, epsilon, lower, upper = map(float, numbers)
        n = int(phi * rounds)
        p = pmf(mechanism, int(mode), left, right, own_epsilon, phi)
        # Rounding moves the sum of 2n losses by about n intervals, which must stay far below
        # epsilon.
        interval = max(2e-7, min(1e-4, epsilon / (1000 * n)))
        high = delta(p, n, int(copies), epsilon, interval, True)
        low = delta(p, n, int(copies), epsilon, interval, False)
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
    assert lines == 48, f"{lines} lines"
    assert compositions == 8, f"{compositions} compositions"
    print("ok")


main()

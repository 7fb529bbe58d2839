#include "src/noise/accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/strings/str_format.h"
#include "src/base/check.h"

namespace shoal::noise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 113 bits, in software: sums that cancel stay exact far below any delta.
using Quad = __float128;

Quad Probability(Weight weight) {
  constexpr Quad kTwo64 = 18446744073709551616.0L;
  return static_cast<Quad>(weight) / kTwo64 / kTwo64;
}

// The next double above (RoundUp) or below (RoundDown) a sum whose own error is below 1e-18.
double RoundUp(Quad value) {
  const double rounded = static_cast<double>(value);
  return std::min(1.0, std::nextafter(rounded + 1e-18, kInfinity));
}
double RoundDown(Quad value) {
  const double rounded = static_cast<double>(value);
  return std::max(0.0, std::nextafter(rounded - 1e-18, -kInfinity));
}

// One outcome of a row's count: its probabilities in the two worlds, and ln(p / q).
struct Atom {
  Weight p;
  Weight q;
  long double loss;
};

// All outcomes with p > 0. Those with q = 0 give the change away: their p is summed instead.
struct RowLoss {
  std::vector<Atom> atoms;
  Weight revealed = 0;
};

long double Loss(Weight p, Weight q) {
  // Computed from the exact difference p - q: losses are small, and p / q - 1 would lose their
  // leading bits.
  return p >= q ? std::log1p(static_cast<long double>(p - q) / static_cast<long double>(q))
                : std::log1p(-static_cast<long double>(q - p) / static_cast<long double>(q));
}

// The losses of a row whose count differs by `copies` between the two worlds: (copies + N, N) if it
// falls, (N, copies + N) if not.
RowLoss LossOfRow(std::span<const Weight> weights, uint32_t copies, bool falls) {
  RowLoss row;
  row.atoms.reserve(weights.size());
  for (size_t k = 0; k < weights.size(); ++k) {
    const Weight p = weights[k];
    if (p == 0) continue;
    // The observer sees k noise queries as k + copies if the row falls, else as k. The other world
    // shows the same count with k + copies (or k - copies) noise queries.
    const size_t other = falls ? k + copies : k - copies;
    const Weight q = other < weights.size() ? weights[other] : 0;  // k - copies wraps: also 0
    if (q == 0) {
      row.revealed += p;
    } else {
      row.atoms.push_back({p, q, Loss(p, q)});
    }
  }
  return row;
}

// The exact delta of one change: sums over every pair of outcomes, in order of the second row's
// loss.
DeltaBounds Enumerate(const RowLoss& down, RowLoss up, double epsilon) {
  std::sort(up.atoms.begin(), up.atoms.end(),
            [](const Atom& a, const Atom& b) { return a.loss > b.loss; });
  // p[j], q[j]: the mass of the j largest losses.
  std::vector<Quad> p(up.atoms.size() + 1, 0), q(up.atoms.size() + 1, 0);
  for (size_t j = 0; j < up.atoms.size(); ++j) {
    p[j + 1] = p[j] + Probability(up.atoms[j].p);
    q[j + 1] = q[j] + Probability(up.atoms[j].q);
  }
  const Quad a = Probability(down.revealed), b = Probability(up.revealed);
  // The factor e^epsilon, right to 2^-62.
  const long double factor = std::exp(static_cast<long double>(epsilon));
  Quad reached_p = 0, reached_q = 0;
  for (const Atom& atom : down.atoms) {
    // Pairs on the border contribute next to nothing, so it does not matter on which side rounding
    // puts them.
    const long double threshold = epsilon - atom.loss;
    const size_t count = std::lower_bound(up.atoms.begin(), up.atoms.end(), threshold,
                                          [](const Atom& x, long double t) { return x.loss > t; }) -
                         up.atoms.begin();
    reached_p += Probability(atom.p) * p[count];
    reached_q += Probability(atom.q) * q[count];
  }
  const Quad revealed = a + b - a * b;
  return {RoundDown(revealed + reached_p - static_cast<Quad>(factor * (1 + 0x1p-61L)) * reached_q),
          RoundUp(revealed + reached_p - static_cast<Quad>(factor * (1 - 0x1p-61L)) * reached_q)};
}

// ---- Many changes -------------------------------------------------------------------------------

// A loss (in nats at first, in grid steps later) and the probability of the first world.
struct LossMass {
  long double loss;
  long double p;
};

long double ToReal(Weight weight) { return std::ldexp(static_cast<long double>(weight), -128); }

// The losses of one row, or of one pair of rows, ready to be convolved with itself.
struct Factor {
  std::vector<LossMass> atoms;
  long double revealed = 0;
};

// Sorts the atoms by loss and joins losses that are equal to 1e-15 of the largest: at their largest
// if `upper`, else at their smallest. First removes the largest losses, of total mass up to
// `budget`, as their ratios are rounding noise from the far end of the table: `upper` counts their
// mass as revealed, else it is dropped.
Factor Condense(Factor factor, long double budget, bool upper) {
  std::vector<LossMass>& atoms = factor.atoms;
  std::sort(atoms.begin(), atoms.end(),
            [](const LossMass& a, const LossMass& b) { return a.loss < b.loss; });
  long double cut = 0;
  while (!atoms.empty() && cut + atoms.back().p <= budget) {
    cut += atoms.back().p;
    atoms.pop_back();
  }
  if (upper) factor.revealed += cut;
  if (atoms.empty()) return factor;
  const long double near =
      1e-15L * std::max(std::abs(atoms.front().loss), std::abs(atoms.back().loss));
  std::vector<LossMass> joined;
  size_t begin = 0;
  for (size_t i = 1; i <= atoms.size(); ++i) {
    if (i < atoms.size() && atoms[i].loss - atoms[begin].loss <= near) continue;
    LossMass sum = {upper ? atoms[i - 1].loss : atoms[begin].loss, 0};
    for (size_t k = begin; k < i; ++k) sum.p += atoms[k].p;
    joined.push_back(sum);
    begin = i;
  }
  atoms = std::move(joined);
  return factor;
}

Factor FactorOf(const RowLoss& row, long double budget, bool upper) {
  Factor factor;
  factor.revealed = ToReal(row.revealed);
  for (const Atom& atom : row.atoms) factor.atoms.push_back({atom.loss, ToReal(atom.p)});
  return Condense(std::move(factor), budget, upper);
}

// ln of the sum of p * e^(theta * loss); there is at least one atom, and they are sorted, or off by
// at most a grid step.
double LogMoment(const Factor& factor, double theta) {
  // So the largest term is near one of the ends.
  const double top =
      theta * static_cast<double>(theta > 0 ? factor.atoms.back().loss : factor.atoms.front().loss);
  double sum = 0;
  for (const LossMass& atom : factor.atoms) {
    sum += static_cast<double>(atom.p) * std::exp(theta * static_cast<double>(atom.loss) - top);
  }
  return top + std::log(sum);
}

double LogMoment(const std::vector<Factor>& factors, double theta, double n) {
  double sum = 0;
  for (const Factor& factor : factors) sum += LogMoment(factor, theta);
  return n * sum;
}

struct Complex {
  double re = 0;
  double im = 0;
  friend Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  friend Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  // The textbook's product. std::complex would also handle infinities, which cannot occur here.
  friend Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

Complex Power(Complex base, uint64_t n) {
  Complex result = {1, 0};
  for (; n > 0; n >>= 1) {
    if (n & 1) result = result * base;
    base = base * base;
  }
  return result;
}

// A discrete Fourier transform of 2^k points, radix 2, in place, unscaled.
class Fourier {
 public:
  explicit Fourier(size_t points) : roots_(points) {
    // The stage with `half` butterflies a block uses the roots at half .. 2 half - 1.
    for (size_t half = 1; half < points; half *= 2) {
      for (size_t k = 0; k < half; ++k) {
        const double angle = std::numbers::pi * static_cast<double>(k) / static_cast<double>(half);
        roots_[half + k] = {std::cos(angle), -std::sin(angle)};
      }
    }
  }

  // y_k = sum of x_j e^(-2 pi i j k / points).
  void Transform(std::vector<Complex>& data) const {
    const size_t n = data.size();
    for (size_t i = 1, j = 0; i < n; ++i) {
      size_t bit = n >> 1;
      for (; j & bit; bit >>= 1) j ^= bit;
      j ^= bit;
      if (i < j) std::swap(data[i], data[j]);
    }
    for (size_t half = 1; half < n; half *= 2) {
      for (size_t start = 0; start < n; start += 2 * half) {
        for (size_t k = 0; k < half; ++k) {
          const Complex even = data[start + k];
          const Complex odd = data[start + k + half] * roots_[half + k];
          data[start + k] = even + odd;
          data[start + k + half] = even - odd;
        }
      }
    }
  }

 private:
  std::vector<Complex> roots_;
};

struct Moment {
  double theta;
  double log_moment;  // ln of the moment of the whole sum
};

// A bound on ln of the tilted mass of the sum beyond `edge` (above it, or below): Markov's
// inequality with each of the moments at hand.
double LogTail(const std::vector<Moment>& moments, const Moment& tilt, double edge, bool up) {
  double best = 0;
  for (const Moment& m : moments) {
    if (m.theta == tilt.theta || (m.theta > tilt.theta) != up) continue;
    best = std::min(best, m.log_moment - tilt.log_moment - (m.theta - tilt.theta) * edge);
  }
  return best;
}

// `count` independent changes with the same noise: their pair of rows, as one factor or as two.
struct Term {
  std::vector<Factor> factors;
  uint64_t count;
};

double LogMoment(const std::vector<Term>& terms, double theta) {
  double sum = 0;
  for (const Term& term : terms) {
    sum += LogMoment(term.factors, theta, static_cast<double>(term.count));
  }
  return sum;
}

uint64_t CountOf(const std::vector<Term>& terms) {
  uint64_t count = 0;
  for (const Term& term : terms) count += term.count;
  return count;
}

// Moves a loss onto the grid. For the upper bound each loss is split between its two neighbours so
// that both worlds keep their mass, which can only help an observer. For the lower bound losses are
// rounded down.
void PutOnGrid(long double step, bool upper, Factor& factor) {
  std::vector<LossMass> on_grid;
  on_grid.reserve(2 * factor.atoms.size());
  for (const LossMass& atom : factor.atoms) {
    const long double below = std::floor(atom.loss / step);
    // The last two terms keep rounding on the safe side.
    const long double rest = std::clamp<long double>(
        atom.loss - below * step + 0x1p-60L * (std::abs(atom.loss) + step), 0, step);
    const long double share = upper ? std::min(1.0L, std::expm1(-rest) / std::expm1(-step)) : 0.0L;
    on_grid.push_back({below * step, atom.p * (1 - share)});
    on_grid.push_back({(below + 1) * step, atom.p * share});
  }
  factor.atoms = std::move(on_grid);
}

// The product of the spectra of a term's tilted factors, whose losses are on the grid.
std::vector<Complex> SpectrumOf(const Term& term, double theta, long double step,
                                const Fourier& fourier, size_t points) {
  // Two factors share one complex transform: one in the real, one in the imaginary part.
  std::vector<Complex> data(points);
  for (size_t f = 0; f < term.factors.size(); ++f) {
    const double log_moment = LogMoment(term.factors[f], theta);
    for (const LossMass& atom : term.factors[f].atoms) {
      const double tilted = static_cast<double>(atom.p) *
                            std::exp(theta * static_cast<double>(atom.loss) - log_moment);
      const int64_t index = static_cast<int64_t>(std::llround(atom.loss / step));
      Complex& slot = data[static_cast<uint64_t>(index) & (points - 1)];
      (f == 0 ? slot.re : slot.im) += tilted;
    }
  }
  fourier.Transform(data);
  if (term.factors.size() == 1) return data;
  std::vector<Complex> product(points);
  for (size_t k = 0; k < points; ++k) {
    const Complex here = data[k], mirror = data[(points - k) & (points - 1)];
    const Complex there = {mirror.re, -mirror.im};
    const Complex sum = here + there, difference = here - there;
    product[k] = Complex{sum.re / 2, sum.im / 2} * Complex{difference.im / 2, -difference.re / 2};
  }
  return product;
}

// The part of delta that comes from finite losses: E[max(0, 1 - e^(epsilon - S))], where S is the
// sum of the losses of all terms, each as often as it counts. An upper bound if `upper`, else a
// lower one.
double Convolve(std::vector<Term> terms, double epsilon, size_t points, bool upper) {
  for (const Term& term : terms) {
    for (const Factor& factor : term.factors) {
      if (factor.atoms.empty()) return 0;
    }
  }
  const uint64_t n = CountOf(terms);
  // The tilt theta that puts the mean of the tilted sum at epsilon: the minimum of the convex
  // LogMoment(theta) - theta * epsilon, whose value bounds ln delta (Chernoff).
  const auto objective = [&](double theta) { return LogMoment(terms, theta) - theta * epsilon; };
  double low = 0, high = 1;
  while (high < 1e6 && objective(2 * high) < objective(high)) high *= 2;
  high *= 2;
  for (int i = 0; i < 60 && high - low > 1e-2 * high; ++i) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    if (objective(left) < objective(right)) {
      high = right;
    } else {
      low = left;
    }
  }
  const double theta = (low + high) / 2;
  Moment tilt = {theta, LogMoment(terms, theta)};
  const double chernoff = tilt.log_moment - theta * epsilon;
  if (chernoff < -75) return upper ? std::exp(std::max(chernoff, -700.0)) : 0;

  // A window that holds all but e^-46 of the tilted sum.
  const auto moments_around = [&] {
    std::vector<Moment> moments;
    // Steps of all sizes, so that some fit the width of the tilted sum for any n.
    for (double step = 1e-4 * (1 + theta); step < 1e4 * (1 + theta); step *= 5) {
      for (const double t : {theta - step, theta + step}) {
        const double log_moment = LogMoment(terms, t);
        if (std::isfinite(log_moment)) moments.push_back({t, log_moment});
      }
    }
    return moments;
  };
  constexpr double kTail = 46;
  double top = kInfinity, bottom = -kInfinity;
  for (const Moment& m : moments_around()) {
    const double edge = (m.log_moment - tilt.log_moment + kTail) / (m.theta - theta);
    if (m.theta > theta) top = std::min(top, edge);
    if (m.theta < theta) bottom = std::max(bottom, edge);
  }
  top = std::max(top, epsilon);
  bottom = std::min(bottom, epsilon);

  // The grid: fine enough for the window, and with the largest loss of the first factor on it, so
  // that sums of few different losses are exact.
  const long double largest = terms[0].factors[0].atoms.back().loss;
  long double step = std::max<long double>(top - bottom, 1e-9L) * 1.01L / (points - 8);
  if (largest > step) step = largest / std::floor(largest / step);
  const int64_t first = static_cast<int64_t>(std::floor(bottom / step)) - 2;
  const double window_top = static_cast<double>((first + static_cast<int64_t>(points)) * step);
  const double window_bottom = static_cast<double>(first * step);

  for (Term& term : terms) {
    for (Factor& factor : term.factors) PutOnGrid(step, upper, factor);
  }
  tilt.log_moment = LogMoment(terms, theta);
  const std::vector<Moment> moments = moments_around();

  const Fourier fourier(points);
  std::vector<Complex> data(points, Complex{1, 0});
  for (const Term& term : terms) {
    const std::vector<Complex> spectrum = SpectrumOf(term, theta, step, fourier, points);
    for (size_t k = 0; k < points; ++k) data[k] = data[k] * Power(spectrum[k], term.count);
  }
  // Transforming the spectrum of a real sequence gives the sequence backwards.
  fourier.Transform(data);

  // Bounds the rounding errors. A transform is right to 8 u log2(points) in the 2-norm (Higham
  // 2002, theorem 24.2). The n-th power multiplies an incoming error by n and adds 4 u n. The
  // tilted masses sum to 1. Multiplying a term's power in adds 4 u.
  constexpr double kUnit = 0x1p-53;
  const double norm_error =
      kUnit * (8 * std::log2(points) * (4 * static_cast<double>(n) + 1) +
               8 * static_cast<double>(n) + 4 * static_cast<double>(terms.size()));
  double sum = 0, squares = 0;
  for (size_t k = 0; k < points; ++k) {
    const int64_t index = first + static_cast<int64_t>(k);
    const double excess = static_cast<double>(index * step - epsilon);
    if (excess <= 0) continue;
    const double weight = -std::expm1(-excess) * std::exp(-theta * excess);
    const double mass =
        data[static_cast<uint64_t>(-index) & (points - 1)].re / static_cast<double>(points);
    sum += std::max(mass, 0.0) * weight;
    squares += weight * weight;
  }
  const double factor = std::exp(tilt.log_moment - theta * epsilon);
  const double rounding =
      norm_error * std::sqrt(squares) + 1e-12 * (1 + std::abs(tilt.log_moment) + n) * sum;
  // The transform is cyclic: mass above the window is counted at its bottom, where it may be lost,
  // and mass below the window is counted at its top.
  const double above = std::exp(LogTail(moments, tilt, window_top, true));
  const double below = std::exp(LogTail(moments, tilt, window_bottom, false));
  return upper ? factor * (sum + rounding + above * 1.01)
               : factor * (sum - rounding - (above + below) * 1.01);
}

// Both rows of a change, and how many changes there are.
struct Changes {
  RowLoss down;
  RowLoss up;
  uint64_t count;
};

// `budget`: see Condense.
Term TermOf(const Changes& changes, long double budget, bool upper) {
  std::vector<Factor> factors = {FactorOf(changes.down, budget, upper),
                                 FactorOf(changes.up, budget, upper)};
  // If the rows have few different losses, as with geometric noise, both rows become one factor, so
  // that rise and fall cancel exactly.
  if (factors[0].atoms.size() * factors[1].atoms.size() <= 100'000) {
    Factor pair;
    for (const LossMass& a : factors[0].atoms) {
      for (const LossMass& b : factors[1].atoms) {
        pair.atoms.push_back({a.loss + b.loss, a.p * b.p});
      }
    }
    pair.revealed =
        factors[0].revealed + factors[1].revealed - factors[0].revealed * factors[1].revealed;
    factors = {Condense(std::move(pair), budget, upper)};
  }
  return {std::move(factors), changes.count};
}

// The probability that some row's count gives its change away.
long double RevealedBy(const std::vector<Term>& terms) {
  long double log_hidden = 0;
  for (const Term& term : terms) {
    for (const Factor& factor : term.factors) {
      log_hidden += static_cast<long double>(term.count) * std::log1p(-factor.revealed);
    }
  }
  return -std::expm1(log_hidden);
}

double TermsDelta(std::vector<Term> terms, double epsilon, size_t points, bool upper) {
  const long double revealed = RevealedBy(terms);
  // Losses are right to 2^-60 each and probabilities to 2^-63.
  const long double slack = 4e-18L * static_cast<long double>(CountOf(terms));
  const double finite = Convolve(std::move(terms), epsilon, points, upper);
  return upper ? RoundUp(revealed * (1 + 1e-15L) + finite + slack)
               : RoundDown(revealed * (1 - 1e-15L) + finite - slack);
}

// The mass that Condense may remove from a factor, where there are `changes` in all.
long double BudgetOf(uint64_t changes) { return 1e-25L / static_cast<long double>(changes); }

double ConvolvedDelta(const Changes& changes, double epsilon, size_t points, bool upper) {
  return TermsDelta({TermOf(changes, BudgetOf(changes.count), upper)}, epsilon, points, upper);
}

absl::Status CheckWeights(std::span<const Weight> weights) {
  Weight sum = 0;
  bool wrapped = false;
  for (Weight weight : weights) {
    sum += weight;
    if (sum < weight) {
      if (wrapped) return absl::InvalidArgumentError("accountant: weights sum to over 2^128");
      wrapped = true;
    }
  }
  if (!wrapped || sum != 0) {
    return absl::InvalidArgumentError("accountant: weights must sum to 2^128");
  }
  return absl::OkStatus();
}

absl::Status CheckEpsilon(double epsilon) {
  if (epsilon >= 0 && epsilon <= kMaxComposedEpsilon) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "accountant: epsilon must be in [0, %g], got %g", kMaxComposedEpsilon, epsilon));
}

absl::Status CheckCopies(uint32_t copies) {
  if (copies >= 1 && copies <= kMaxCopies) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("accountant: copies must be in [1, %d], got %d", kMaxCopies, copies));
}

absl::Status CheckArguments(std::span<const Weight> weights, const Exposure& exposure) {
  if (exposure.phi == 0 || exposure.rounds == 0 || exposure.submissions == 0) {
    return absl::InvalidArgumentError("accountant: phi, rounds and submissions must be at least 1");
  }
  const unsigned __int128 changes =
      static_cast<unsigned __int128>(exposure.phi) * exposure.rounds * exposure.submissions;
  if (changes > kMaxChanges) {
    return absl::InvalidArgumentError(
        absl::StrFormat("accountant: phi * rounds * submissions must be at most %d", kMaxChanges));
  }
  if (absl::Status status = CheckCopies(exposure.copies); !status.ok()) return status;
  return CheckWeights(weights);
}

absl::StatusOr<Changes> ChangesOf(std::span<const Weight> weights, const Exposure& exposure) {
  if (absl::Status status = CheckArguments(weights, exposure); !status.ok()) return status;
  return Changes{LossOfRow(weights, exposure.copies, /*falls=*/true),
                 LossOfRow(weights, exposure.copies, /*falls=*/false),
                 uint64_t{exposure.phi} * exposure.rounds * exposure.submissions};
}

constexpr size_t Points(Precision precision) {
  return size_t{1} << (precision == Precision::kSearch ? 14 : 18);
}

double UpperDelta(const Changes& changes, double epsilon, Precision precision) {
  if (changes.count == 1) return Enumerate(changes.down, changes.up, epsilon).upper;
  return ConvolvedDelta(changes, epsilon, Points(precision), true);
}

// The terms of a composition, for an upper or a lower bound on its delta. Empty if nothing changes.
absl::StatusOr<std::vector<Term>> TermsOf(const Composition& composition, bool upper) {
  uint64_t changes = 0;
  const auto count = [&](uint64_t more) {
    // Neither sum can overflow, as every part is checked.
    if (more > kMaxChanges || changes + more > kMaxChanges) return false;
    changes += more;
    return true;
  };
  const absl::Status too_many = absl::InvalidArgumentError(
      absl::StrFormat("accountant: a composition has at most %d changes", kMaxChanges));
  for (const auto& [weights, times, copies] : composition.noise) {
    if (absl::Status status = CheckWeights(weights); !status.ok()) return status;
    if (absl::Status status = CheckCopies(copies); !status.ok()) return status;
    if (!count(times)) return too_many;
  }
  for (const auto& [epsilon, delta, times] : composition.claims) {
    if (!(epsilon >= 0 && epsilon <= kMaxComposedEpsilon && delta >= 0 && delta < 1)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "accountant: a claim of epsilon %g, delta %g is out of range", epsilon, delta));
    }
    if (!count(times)) return too_many;
  }
  std::vector<Term> terms;
  if (changes == 0) return terms;
  for (const auto& [weights, times, copies] : composition.noise) {
    if (times == 0) continue;
    terms.push_back(TermOf({LossOfRow(weights, copies, /*falls=*/true),
                            LossOfRow(weights, copies, /*falls=*/false), times},
                           BudgetOf(changes), upper));
  }
  for (const auto& [epsilon, delta, times] : composition.claims) {
    if (times == 0) continue;
    // The worst mechanism with this claim: it gives its change away with probability delta, and
    // otherwise answers truthfully with odds e^epsilon (Kairouz, Oh, Viswanath 2015, theorem 3.1).
    const long double truth = 1 / (1 + std::exp(-static_cast<long double>(epsilon)));
    Factor worst;
    worst.revealed = delta;
    worst.atoms = {{-static_cast<long double>(epsilon), (1 - worst.revealed) * (1 - truth)},
                   {static_cast<long double>(epsilon), (1 - worst.revealed) * truth}};
    terms.push_back({{std::move(worst)}, times});
  }
  return terms;
}

}  // namespace

Exposure FullestPattern(uint32_t phi, uint32_t most_in_bucket) {
  SHOAL_CHECK(phi >= 1 && most_in_bucket >= 1);
  const uint32_t copies = std::min(phi, most_in_bucket);
  return {.phi = (phi - 1) / copies + 1, .copies = copies};
}

absl::StatusOr<DeltaBounds> SubstitutionDelta(std::span<const Weight> weights, double epsilon,
                                              const Exposure& exposure, Precision precision) {
  if (absl::Status status = CheckEpsilon(epsilon); !status.ok()) return status;
  absl::StatusOr<Changes> changes = ChangesOf(weights, exposure);
  if (!changes.ok()) return changes.status();
  if (changes->count == 1) return Enumerate(changes->down, std::move(changes->up), epsilon);
  return DeltaBounds{ConvolvedDelta(*changes, epsilon, Points(precision), false),
                     ConvolvedDelta(*changes, epsilon, Points(precision), true)};
}

absl::StatusOr<double> SubstitutionDeltaUpper(std::span<const Weight> weights, double epsilon,
                                              const Exposure& exposure, Precision precision) {
  if (absl::Status status = CheckEpsilon(epsilon); !status.ok()) return status;
  absl::StatusOr<Changes> changes = ChangesOf(weights, exposure);
  if (!changes.ok()) return changes.status();
  return UpperDelta(*changes, epsilon, precision);
}

absl::StatusOr<DeltaBounds> ComposedDelta(const Composition& composition, double epsilon,
                                          Precision precision) {
  if (absl::Status status = CheckEpsilon(epsilon); !status.ok()) return status;
  DeltaBounds bounds;
  for (const bool upper : {false, true}) {
    absl::StatusOr<std::vector<Term>> terms = TermsOf(composition, upper);
    if (!terms.ok()) return terms.status();
    if (terms->empty()) return bounds;
    (upper ? bounds.upper : bounds.lower) =
        TermsDelta(*std::move(terms), epsilon, Points(precision), upper);
  }
  return bounds;
}

absl::StatusOr<double> ComposedEpsilon(const Composition& composition, double delta) {
  if (!(delta >= 0 && delta <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("accountant: delta must be in [0, 1], got %g", delta));
  }
  absl::StatusOr<std::vector<Term>> terms = TermsOf(composition, /*upper=*/true);
  if (!terms.ok()) return terms.status();
  if (terms->empty()) return 0;
  const auto holds = [&](double epsilon, Precision precision) {
    return TermsDelta(*terms, epsilon, Points(precision), /*upper=*/true) <= delta;
  };
  if (RevealedBy(*terms) > delta || (!holds(kMaxComposedEpsilon, Precision::kSearch) &&
                                     !holds(kMaxComposedEpsilon, Precision::kExact))) {
    return absl::OutOfRangeError(absl::StrFormat(
        "accountant: no epsilon up to %g holds at delta %g", kMaxComposedEpsilon, delta));
  }
  // Finds the place with the coarse grid, whose answers are a little too large, and then narrows it
  // down with the fine one. `high` always holds.
  double low = 0, high = kMaxComposedEpsilon;
  const auto narrow = [&](Precision precision, double relative) {
    while (high - low > relative * high && high > 1e-9) {
      const double middle = (low + high) / 2;
      (holds(middle, precision) ? high : low) = middle;
    }
  };
  narrow(Precision::kSearch, 1e-4);
  low = std::max(0.0, high * 0.998);
  if (low > 0 && holds(low, Precision::kExact)) low = 0;
  narrow(Precision::kExact, 1e-4);
  return high;
}

absl::StatusOr<std::vector<Weight>> WeightsFrom(std::span<const double> frequencies) {
  long double sum = 0;
  for (double f : frequencies) {
    if (!(f >= 0) || std::isinf(f)) {
      return absl::InvalidArgumentError("accountant: frequencies must be finite and not negative");
    }
    sum += f;
  }
  if (!(sum > 0)) return absl::InvalidArgumentError("accountant: frequencies are all zero");
  std::vector<Weight> weights;
  Weight total = 0;
  for (double f : frequencies) {
    // Computed as twice a multiple of 2^-127, as 2^128 itself does not fit a Weight.
    weights.push_back(2 * static_cast<Weight>(std::ldexp(f / sum * (1 - 0x1p-60L), 127)));
    total += weights.back();
  }
  *std::max_element(weights.begin(), weights.end()) -= total;
  return weights;
}

}  // namespace shoal::noise

// What benchmarks measure and print: a line of JSON for each figure.
#ifndef SHOAL_SRC_BASE_TESTING_FIGURES_H_
#define SHOAL_SRC_BASE_TESTING_FIGURES_H_

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "src/base/stopwatch.h"

namespace shoal::testing {

// Figures by name, which is the inside of a JSON object, with a value for each round.
class Figures {
 public:
  void Add(const std::string& figure, double value) {
    if (values_.count(figure) == 0) order_.push_back(figure);
    values_[figure].push_back(value);
  }
  // The medians, in the order in which figures came first.
  void Print() const {
    for (const std::string& figure : order_) {
      std::printf("{%s, \"value\": %.4g}\n", figure.c_str(), Median(values_.at(figure)));
    }
    std::fflush(stdout);
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> values_;
};

// How busy the machine was in the last minute.
inline void PrintLoad(const char* figure) {
  double load[3] = {};
  getloadavg(load, 3);
  std::printf("{\"figure\": \"%s\", \"value\": %.1f}\n", figure, load[0]);
}

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_FIGURES_H_

"""Tests functions.py."""

import os
import tempfile
import unittest

import functions

LISTED = """# Why.

# Longer than 100 lines
src/a.cc Long

# Longer than 70 lines
src/a.cc B::Middle
"""


class FunctionsTest(unittest.TestCase):

    def found(self, text):
        return [(name, lines) for name, _, lines in functions.functions(text)]

    def test_finds_functions_wherever_they_are(self):
        self.assertEqual(functions.functions("""#include "x.h"
namespace a::b {
namespace {

int One() { return 1; }

template <typename T, size_t kN = 3>
std::vector<T> Two(
    const T& t) {
  return {};
}

}  // namespace
struct S final : public T<int> {
  explicit S(int a) : a_(a), b_{1}, c_({2, 3}) {
    a_ = 1;
  }
  ~S() override { End(); }
  bool operator==(const S&) const {
    return true;
  }
  auto operator()(int) -> std::pair<int, int> {
    return {};
  }

 private:
  class Inner {
   public:
    virtual void F() const noexcept {
    }
  };
  int a_ = 0, b_{2};
  Mutex mutex_;
  std::vector<int> c_ ABSL_GUARDED_BY(mutex_) = {1, 2,
                                                 3};
};
extern "C" {
int c_function(void) {
  return 0;
}
}
}
"""), [("One", 5, 1), ("Two", 7, 5), ("S::S", 15, 3), ("S::~S", 18, 1), ("S::operator==", 19, 3),
             ("S::operator()", 22, 3), ("S::Inner::F", 29, 2), ("c_function", 38, 3)])

    def test_a_lambda_is_a_part_of_its_function(self):
        self.assertEqual(self.found("void A::B::F(int x) {\n  const auto f = [&](int y) {\n    return y;\n  };\n}\nint g;\n"),
                         [("A::B::F", 5)])

    def test_values_are_no_functions(self):
        self.assertEqual(self.found("""constexpr int kA[] = {
    1,
};
const S kS{1, 2};
enum class E { kA, kB };
void F(S s = {1}, std::function<void()> f = [] { return; });
"""), [])

    def test_braces_that_are_no_code_do_not_count(self):
        self.assertEqual(self.found("""// {
/* {{ */
#define OPEN {
const char kA[] = "{\\"", kB = '{', kC = '\\'', *kD = R"x({{
)" {)x";
void F(int a) {
  int n = 1'000'000;  // }
  Say("}");
}
"""), [("F", 4)])

    def test_what_it_does_not_understand_is_said(self):
        with self.assertRaises(ValueError):
            functions.functions("namespace a {\nvoid F() {\n}\n")

    def test_only_production_code_counts(self):
        with tempfile.TemporaryDirectory() as root:
            for name in ("a.cc", "a.h", "a_test.cc", "a_benchmark.cc", "testing/b.cc", "testdata/c.cc", "a.py"):
                path = os.path.join(root, "src", "a", name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("void F() {\n" + "\n" * 80 + "}\n")
            self.assertEqual(functions.long_functions(root), {"src/a/a.cc F": 82, "src/a/a.h F": 82})

    def test_a_list_is_kept_to_what_is_long(self):
        listed = functions.read_list(LISTED)
        self.assertEqual(listed, {"src/a.cc Long": 100, "src/a.cc B::Middle": 70})
        self.assertEqual(functions.problems({"src/a.cc Long": 101, "src/a.cc B::Middle": 100}, listed), [])
        for long, part in (({"src/a.cc Long": 101, "src/a.cc B::Middle": 71, "src/b.cc New": 71}, "src/b.cc New: 71 lines"),
                           ({"src/a.cc Long": 101, "src/a.cc B::Middle": 101}, "B::Middle: 101 lines"),
                           ({"src/a.cc Long": 100, "src/a.cc B::Middle": 71}, "Long: no longer longer than 100"),
                           ({"src/a.cc Long": 101}, "B::Middle: no longer longer than 70")):
            wrong = functions.problems(long, listed)
            self.assertEqual(len(wrong), 1, wrong)
            self.assertIn(part, wrong[0])

    def test_a_list_only_shrinks(self):
        self.assertEqual(functions.shrunk(LISTED, {"src/a.cc Long": 101, "src/a.cc B::Middle": 100}), LISTED)
        long = {"src/a.cc Long": 99, "src/b.cc New": 200}
        shorter = functions.shrunk(LISTED, long)
        self.assertEqual(shorter, "# Why.\n\n# Longer than 100 lines\n\n# Longer than 70 lines\nsrc/a.cc Long\n")
        self.assertEqual(len(functions.problems(long, functions.read_list(shorter))), 1, "the new one")
        # Not back into the first part.
        self.assertEqual(functions.shrunk(LISTED, {"src/a.cc B::Middle": 120}),
                         "# Why.\n\n# Longer than 100 lines\n\n# Longer than 70 lines\nsrc/a.cc B::Middle\n")


if __name__ == "__main__":
    unittest.main()

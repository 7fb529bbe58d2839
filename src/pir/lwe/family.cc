#include "src/pir/lwe/family.h"

#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/units.h"

namespace shoal::pir::lwe {
namespace {

class LweEngine final : public Engine {
 public:
  explicit LweEngine(Scheme scheme) : scheme_(scheme) {}

  absl::string_view name() const override { return SchemeName(scheme_); }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kSingle};
    return kRoles;
  }
  bool keeps_state() const override { return false; }

  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions& options) const override {
    return lwe::ShapeOf(scheme_, content, options);
  }
  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape) const override {
    return lwe::SizesOfShape(scheme_, shape);
  }
  Work WorkOf(const wire::PirSetup& shape, double together) const override {
    return lwe::WorkOf(scheme_, shape, together);
  }

  absl::StatusOr<std::unique_ptr<pir::Server>> CreateServer(const Content& content,
                                                            ServerOptions options) const override {
    return lwe::CreateServer(scheme_, content, std::move(options));
  }
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const SessionOptions& options) const override {
    SHOAL_CHECK(setups.size() == 1);
    // Also refuses a setup of the other engine.
    SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
    return OpenClient(setups[0], {.pool = options.pool});
  }

 private:
  const Scheme scheme_;
};

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&SimplePir(), &DoublePir()};
    return engines;
  }
  std::span<const Amount> units() const override { return Units(); }
  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool& pool) const override {
    return lwe::MeasureUnits(bytes, random, pool);
  }
};

}  // namespace

const Engine& SimplePir() {
  static const LweEngine engine(Scheme::kSimplePir);
  return engine;
}

const Engine& DoublePir() {
  static const LweEngine engine(Scheme::kDoublePir);
  return engine;
}

const Family& LweFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::lwe

// What all engines have in common whose setups have a shape of their own (PirSetup.shape): the
// fields of a setup, the choice of a shape, what servers and sessions are made of.
#ifndef SHOAL_SRC_PIR_KIT_SHAPED_ENGINE_H_
#define SHOAL_SRC_PIR_KIT_SHAPED_ENGINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/pir/engine.h"

namespace shoal::pir {

class ShapedEngine : public Engine {
 public:
  enum class Servers {
    kOne,
    kPair  // an offline and an online one; where clients keep state, hints are heavy work
           // (table_server.h)
  };

  absl::string_view name() const final { return name_; }
  std::span<const Role> roles() const final;
  bool keeps_state() const final { return keeps_state_; }
  bool IsHeavy(Role role, uint32_t kind) const final;
  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions& options) const final;
  absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                       ServerOptions options) const final;
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(std::span<const wire::PirSetup> setups,
                                                       const SessionOptions& options) const final;

 protected:
  ShapedEngine(absl::string_view name, Servers servers, bool keeps_state)
      : name_(name), servers_(servers), keeps_state_(keeps_state) {}

  // PirSetup.shape that the engine chooses for a table, whose other fields are set. Errors as
  // Engine::ShapeOf.
  virtual absl::StatusOr<std::string> ChooseShape(const wire::PirSetup& table) const = 0;
  // Of what ShapeOf returned for these options.
  virtual absl::StatusOr<std::unique_ptr<Server>> MakeServer(
      wire::PirSetup setup, const Content& content, const ServerOptions& options) const = 0;
  // Of a whole setup (SizesOf), which all servers have, with a store if keeps_state().
  virtual absl::StatusOr<std::unique_ptr<Session>> MakeSession(
      const wire::PirSetup& setup, const SessionOptions& options) const = 0;

 private:
  const absl::string_view name_;
  const Servers servers_;
  const bool keeps_state_;
};

// Whether the options say which shape a server is to have.
bool HasShape(const ServerOptions& options);

// PirSetup.shape of so many bytes. INVALID_ARGUMENT for another length, for fields of other
// families' shapes, and for records that are too long.
absl::StatusOr<BytesView> OwnShape(const wire::PirSetup& setup, size_t bytes);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_SHAPED_ENGINE_H_

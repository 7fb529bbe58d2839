#include "src/pir/pair/pair.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/measure.h"
#include "src/pir/kit/shaped_engine.h"
#include "src/pir/kit/stateless_session.h"
#include "src/pir/pair/pair_client.h"
#include "src/pir/pair/pair_server.h"
#include "src/pir/pair/pair_shape.h"
#include "src/pir/pair/point_keys.h"

namespace shoal::pir::pair {
namespace {

// Nodes of a server's tree that are hashed for a query: about two for each of the last level, which
// have an inner node each, and one to make it bits.
double NodesOf(const PairShape& shape) {
  if (shape.form == Form::kVector) return 0;
  return 3 * static_cast<double>(LeavesFor(shape.rows));
}

class PairEngine final : public ShapedEngine {
 public:
  PairEngine() : ShapedEngine("pair", Servers::kPair, /*keeps_state=*/false) {}

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& setup) const override {
    SHOAL_ASSIGN_OR_RETURN(const PairShape shape, ParsePairShape(setup));
    Sizes sizes;
    sizes.query_bytes = 2 * shape.query_bytes();
    sizes.answer_bytes = 2 * shape.answer_bytes();
    sizes.server_bytes = 2 * shape.table_bytes();  // a copy at each
    return sizes;
  }

  Work WorkOf(const wire::PirSetup& setup, double together) const override {
    const auto shape = ParsePairShape(setup);
    SHOAL_CHECK(shape.ok());
    const double shared = std::clamp<double>(together, 1, PairTableServer::kTogether);
    const auto table = static_cast<double>(shape->table_bytes());
    Work work = {
        .setup = {{"sets_copy_byte", 2 * table}},
        .query = {{"pair_ask_byte", 2 * static_cast<double>(shape->body_bytes())}},
        .answer = {{"pair_pass_byte", 2 * table / shared}, {"pair_node", 2 * NodesOf(*shape)}},
        .recover = {{"pair_recover_byte", static_cast<double>(shape->record_bytes)}}};
    if (shared > 1) work.answer.push_back({"pair_query_byte", 2 * table * (shared - 1) / shared});
    return work;
  }

 protected:
  absl::StatusOr<std::string> ChooseShape(const wire::PirSetup& table) const override {
    return EncodePairShape(ShorterForm(table.rows()));
  }
  absl::StatusOr<std::unique_ptr<Server>> MakeServer(wire::PirSetup setup, const Content& content,
                                                     const ServerOptions& options) const override {
    return PairTableServer::Create(std::move(setup), content, options);
  }
  absl::StatusOr<std::unique_ptr<Session>> MakeSession(const wire::PirSetup& setup,
                                                       const SessionOptions&) const override {
    return OpenStatelessSession<PairClient>(setup);
  }
};

constexpr Amount kUnits[] = {
    // At each server: a byte of the table in a pass, with one query; the same for each further
    // query; a node of a key's tree hashed. At the client: a byte of a query drawn, and of a record
    // recovered.
    {"pair_pass_byte", 0.09}, {"pair_query_byte", 0.012}, {"pair_node", 1.6},
    {"pair_ask_byte", 3},     {"pair_recover_byte", 0.2},
};

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&Pair()};
    return engines;
  }
  std::span<const Amount> units() const override { return kUnits; }
  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool& pool) const override;
};

// What a pass of `queries` queries costs the server.
double PassNs(const PairTableServer& server, const PairClient& client, size_t queries,
              RandomSource& random) {
  Bytes body;
  for (size_t q = 0; q < queries; ++q) Append(body, client.Ask(q, random).queries[0]);
  const RequestView request = {.kind = 0, .count = static_cast<uint32_t>(queries), .body = body};
  return 1e9 * LeastSeconds(3, [&] {
           SHOAL_CHECK(server.Answer(Role::kOffline, {&request, 1})[0].ok());
         });
}

std::vector<Amount> TheFamily::MeasureUnits(uint64_t bytes, RandomSource& random,
                                            ThreadPool& pool) const {
  constexpr uint32_t kRecordBytes = 256;
  const Content content =
      ContentToMeasure(std::max<uint64_t>(1 << 12, bytes / kRecordBytes), kRecordBytes);
  ServerOptions options = {.pool = &pool};
  const wire::PirSetup setup = *Pair().ShapeOf(content, options);
  const PairShape shape = *ParsePairShape(setup);
  const auto server = *PairTableServer::Create(setup, content, options);
  const auto client = *PairClient::Create(setup);
  // A tree by itself, of the same size.
  const Bytes key =
      ToBytes(BytesView(client->Ask(0, random).queries[0]).subspan(kQueryHeaderBytes));
  const PointTree tree(shape.levels(), key);
  const double node_ns =
      CostOf(TypicalNanoseconds([&] {
               SecretVector<Node> nodes = {tree.root()}, scratch;
               tree.Grow(0, shape.levels(), LeavesFor(shape.rows), nodes, scratch);
               tree.ToBits(nodes, scratch);
             }) /
             NodesOf(shape));
  const auto table = static_cast<double>(shape.table_bytes());
  const double tree_byte = node_ns * NodesOf(shape) / table;
  const double one = CostOf(PassNs(*server, *client, 1, random) / table - tree_byte);
  constexpr size_t kTogether = PairTableServer::kTogether;
  const double many = PassNs(*server, *client, kTogether, random) / table - kTogether * tree_byte;
  const double ask_ns = TypicalNanoseconds([&] { (void)client->Ask(1, random); });
  const PairAsked asked = client->Ask(1, random);
  const Bytes answer(kRecordBytes);
  const std::array<BytesView, 2> answers = {answer, answer};
  const double recover_ns =
      TypicalNanoseconds([&] { SHOAL_CHECK(client->Recover(asked, answers).ok()); });
  return {{"pair_pass_byte", one},
          {"pair_query_byte", CostOf((many - one) / (kTogether - 1))},
          {"pair_node", node_ns},
          {"pair_ask_byte", CostOf(ask_ns / (2 * static_cast<double>(shape.body_bytes())))},
          {"pair_recover_byte", CostOf(recover_ns / kRecordBytes)}};
}

}  // namespace

const Engine& Pair() {
  static const PairEngine engine;
  return engine;
}

const Family& PairFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::pair

#include "src/pir/pair/pair_server.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <utility>

#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/checks.h"
#include "src/pir/kit/table_server.h"
#include "src/pir/pages.h"
#include "src/pir/pair/point_keys.h"
#include "src/select/select.h"

namespace shoal::pir::pair {
namespace {

// Of a table that are scanned at a time: long enough that what a piece costs beside its scan is
// little.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxPieceRows = uint64_t{1} << 16;

// A power of two, so that a piece is all below one node of a tree.
uint64_t PieceRows(const PairShape& shape) {
  return std::clamp(std::bit_floor(kPieceBytes / shape.record_bytes), kLeafRows, kMaxPieceRows);
}

// The level of a key's tree with a node for each piece.
uint32_t PieceLevel(const PairShape& shape, uint64_t piece_rows) {
  return shape.levels() - std::min(shape.levels(), LevelsFor(piece_rows));
}

// The bits of one query for the rows of one piece after the other. Of one thread.
class Selection {
 public:
  // `above` are the nodes that pieces are below; empty for a vector.
  Selection(const PairShape& shape, uint64_t piece_rows, BytesView body,
            const SecretVector<Node>& above)
      : piece_rows_(piece_rows),
        piece_level_(PieceLevel(shape, piece_rows)),
        levels_(shape.levels()),
        body_(body),
        above_(above) {
    if (shape.form == Form::kKey) tree_.emplace(levels_, body);
  }

  // Of the piece with `places` rows. Valid until the next call.
  BytesView Of(uint64_t piece, uint64_t places) {
    const size_t bytes = select::SelectionBytes(places);
    if (!tree_.has_value()) return body_.subspan(piece * piece_rows_ / 8, bytes);
    const size_t leaves = LeavesFor(places);
    nodes_.assign(1, above_[piece]);
    tree_->Grow(piece_level_, levels_, leaves, nodes_, scratch_);
    tree_->ToBits(nodes_, scratch_);
    return BytesView(reinterpret_cast<const uint8_t*>(nodes_.data()), leaves * sizeof(Node))
        .first(bytes);
  }

 private:
  const uint64_t piece_rows_;
  const uint32_t piece_level_, levels_;
  const BytesView body_;
  const SecretVector<Node>& above_;
  std::optional<PointTree> tree_;
  SecretVector<Node> nodes_, scratch_;
};

// The nodes of a key's tree that pieces are below.
SecretVector<Node> NodesAbove(const PairShape& shape, uint64_t piece_rows, uint64_t pieces,
                              BytesView key) {
  SecretVector<Node> nodes, scratch;
  const PointTree tree(shape.levels(), key);
  nodes.push_back(tree.root());
  tree.Grow(0, PieceLevel(shape, piece_rows), pieces, nodes, scratch);
  return nodes;
}

}  // namespace

PairTableServer::PairTableServer(wire::PirSetup setup, const PairShape& shape, PageBuffer table,
                                 ThreadPool* pool)
    : setup_(std::move(setup)),
      shape_(shape),
      table_(std::move(table)),
      room_(shape.rows),
      pool_(pool),
      id_(SetupId(setup_)) {}

absl::StatusOr<std::unique_ptr<PairTableServer>> PairTableServer::Create(
    wire::PirSetup setup, const Content& content, const ServerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const PairShape shape, ParsePairShape(setup));
  SHOAL_ASSIGN_OR_RETURN(PageBuffer table, AllocatePages(shape.table_bytes(), "the rows of pair"));
  TableServer::LoadRows(content, options, table);
  return std::unique_ptr<PairTableServer>(
      new PairTableServer(std::move(setup), shape, std::move(table), options.pool));
}

absl::StatusOr<BytesView> PairTableServer::Read(Role role, BytesView query) const {
  SHOAL_RETURN_IF_ERROR(CheckQuery(setup_, id_, shape_.query_bytes(), query));
  const BytesView body = query.subspan(kQueryHeaderBytes);
  if (shape_.form == Form::kKey) {
    SHOAL_RETURN_IF_ERROR(CheckPointKey(shape_.levels(), role == Role::kOnline, body));
  }
  return body;
}

absl::StatusOr<std::vector<Bytes>> PairTableServer::AnswerTogether(
    std::span<const BytesView> bodies) const {
  const uint64_t piece_rows = PieceRows(shape_), pieces = (shape_.rows - 1) / piece_rows + 1;
  std::vector<SecretVector<Node>> above(bodies.size());
  if (shape_.form == Form::kKey) {
    ParallelForEach(pool_, bodies.size(), [&](size_t q) {
      above[q] = NodesAbove(shape_, piece_rows, pieces, bodies[q]);
    });
  }
  // Every thread has an equal part of the pieces, and sums of its own.
  const size_t parts = std::min<uint64_t>(pieces, ThreadsOf(pool_));
  const uint64_t bytes = shape_.record_bytes;
  std::vector<Bytes> sums(parts, Bytes(bodies.size() * bytes));
  std::vector<absl::Status> scanned(parts);
  ParallelForEach(pool_, parts, [&](size_t part) {
    std::deque<Selection> selections;
    for (size_t q = 0; q < bodies.size(); ++q) {
      selections.emplace_back(shape_, piece_rows, bodies[q], above[q]);
    }
    std::vector<select::Query> queries(bodies.size());
    for (uint64_t piece = pieces * part / parts; piece < pieces * (part + 1) / parts; ++piece) {
      const uint64_t first = piece * piece_rows;
      const uint64_t places = std::min(piece_rows, shape_.rows - first);
      for (size_t q = 0; q < bodies.size(); ++q) {
        queries[q] = {.selection = selections[q].Of(piece, places),
                      .sum = MutableBytes(sums[part]).subspan(q * bytes, bytes)};
      }
      const auto rows = select::Rows::Strided(
          BytesView(table_).subspan(first * bytes, places * bytes), bytes, bytes, places);
      scanned[part] = rows.ok() ? select::SelectFromTable(*rows, places, queries) : rows.status();
      if (!scanned[part].ok()) return;
    }
  });
  for (const absl::Status& status : scanned) SHOAL_RETURN_IF_ERROR(status);
  std::vector<Bytes> answers(bodies.size(), Bytes(bytes));
  for (const Bytes& part : sums) {
    for (size_t q = 0; q < answers.size(); ++q) {
      for (size_t i = 0; i < bytes; ++i) answers[q][i] ^= part[q * bytes + i];
    }
  }
  return answers;
}

std::vector<absl::StatusOr<Bytes>> PairTableServer::Answer(
    Role role, std::span<const RequestView> requests) const {
  return AnswerInPasses(
      setup_, kPairRoles, shape_.query_bytes(), kTogether, role, requests,
      [&](BytesView query) { return Read(role, query); },
      [&](std::span<const BytesView> bodies) { return AnswerTogether(bodies); });
}

absl::StatusOr<double> PairTableServer::RefreshShare(const Content& content,
                                                     std::span<const uint64_t> changed_rows) const {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, room_, content, changed_rows));
  return static_cast<double>(changed_rows.size()) / static_cast<double>(room_);
}

absl::StatusOr<std::optional<Delta>> PairTableServer::Refresh(
    const Content& content, std::span<const uint64_t> changed_rows) {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, room_, content, changed_rows));
  for (const uint64_t row : changed_rows) {
    if (row >= content.rows) break;
    content.copy(row, MutableBytes(table_).subspan(row * shape_.record_bytes, shape_.record_bytes));
  }
  SetEpoch(content, setup_);
  shape_.rows = content.rows;
  id_ = SetupId(setup_);
  return std::optional<Delta>();
}

}  // namespace shoal::pir::pair
